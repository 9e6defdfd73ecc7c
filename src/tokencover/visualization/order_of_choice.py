"""The order in which tokens were chosen, played: prompt centres first, then farthest points."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image

from tokencover.errors import InputError
from tokencover.pruning import Trace
from tokencover.visualization.center_words import number_words
from tokencover.visualization.kept_tokens import KeptToken, find_kept_tokens
from tokencover.visualization.shown_pictures import list_views
from tokencover.visualization.still_pictures import draw_view

_SIDE = 480
"""Pixels along the longer side."""
_LAST_PAUSE = 1500
"""Milliseconds that the finished cover is shown before it starts again."""


def animate_choice(
    picture: Image.Image,
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    steps: int = 32,
    pause: int = 120,
) -> bytes:
    """An animated GIF in which the kept tokens appear in the order in which they were chosen.

    Parameters
    ----------
    picture : Image
        What the model was shown (its first view).
    trace : Trace
        What happened to the sample; the method must tell the order of its choice, as MoB does.
    words : sequence of str, optional
        The word of each prompt centre, from `words_of_centers`.
    steps : int
        Pictures in the animation, at most; each adds as many tokens.
    pause : int
        Milliseconds for each.

    Raises
    ------
    InputError
        If the method does not tell an order, or there is less than one step.
    """
    if steps < 1 or pause < 1:
        raise InputError(f"steps and pause must be at least 1, got {steps} and {pause}.")
    view = list_views(picture, trace, 0)[0]
    kept = find_kept_tokens(trace, words).of_view(view.medium, view.frame)
    ordered = sorted((token for token in kept if token.order is not None), key=_find_turn)
    if not ordered:
        raise InputError(
            "the method does not tell the order of its choice: MoB, nearest and farthest do."
        )
    scale = max(1, round(_SIDE / max(view.picture.size)))
    size = view.picture.width * scale, view.picture.height * scale
    large = view.picture.convert("RGB").resize(size, Image.Resampling.NEAREST)
    numbers = number_words(words)
    counts = sorted({round(len(ordered) * step / steps) for step in range(steps + 1)})
    frames = [draw_view(large, view.grid, ordered[:count], numbers) for count in counts]
    file = io.BytesIO()
    pauses = [pause] * (len(frames) - 1) + [_LAST_PAUSE]
    frames[0].save(
        file, "GIF", save_all=True, append_images=frames[1:], duration=pauses, loop=0, optimize=True
    )
    return file.getvalue()


def _find_turn(token: KeptToken) -> tuple[bool, int]:
    return token.role != "prompt", token.order or 0
