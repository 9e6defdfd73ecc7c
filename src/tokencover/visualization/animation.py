"""An animation of the order of selection: prompt centers first, then farthest points."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image

from tokencover.errors import InputError
from tokencover.pruning import Trace
from tokencover.visualization.kept_tokens import get_kept_tokens, number_words
from tokencover.visualization.shown_images import list_views
from tokencover.visualization.still import draw_view

_SIDE = 480
"""Pixels along the longer side."""
_LAST_PAUSE = 1500
"""Milliseconds for the last frame, before the animation restarts."""


def animate_choice(
    image: Image.Image,
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    steps: int = 32,
    pause: int = 120,
) -> bytes:
    """Draw an animated GIF in which the kept tokens appear in the order of their selection.

    Parameters
    ----------
    image : Image
        What the model was shown (its first view).
    trace : Trace
        What happened to the sample; the method must record the order of its choice, as MoB does.
    words : sequence of str, optional
        The word of each prompt center, from `words_of_centers`.
    steps : int
        Maximum number of frames; each adds as many tokens.
    pause : int
        Milliseconds per frame.

    Raises
    ------
    InputError
        If the method records no order, or `steps` or `pause` is below 1.
    """
    if steps < 1 or pause < 1:
        raise InputError(f"steps and pause must be at least 1, got {steps} and {pause}.")
    view = list_views(image, trace, 0)[0]
    kept = get_kept_tokens(trace, words).of_view(view.medium, view.frame)
    ordered = sorted(
        (token for token in kept if token.order is not None),
        key=lambda token: (token.role != "prompt", token.order or 0),
    )
    if not ordered:
        raise InputError(
            "the method does not record the order of its choice: use mob, nearest or farthest."
        )
    scale = max(1, round(_SIDE / max(view.image.size)))
    size = view.image.width * scale, view.image.height * scale
    large = view.image.convert("RGB").resize(size, Image.Resampling.NEAREST)
    numbers = number_words(words)
    counts = sorted({round(len(ordered) * step / steps) for step in range(steps + 1)})
    frames = [draw_view(large, view.grid, ordered[:count], numbers) for count in counts]
    file = io.BytesIO()
    pauses = [pause] * (len(frames) - 1) + [_LAST_PAUSE]
    frames[0].save(
        file, "GIF", save_all=True, append_images=frames[1:], duration=pauses, loop=0, optimize=True
    )
    return file.getvalue()
