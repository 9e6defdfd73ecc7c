"""The kept tokens drawn on one picture."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

from tokencover.runtime import Trace
from tokencover.viewing.canvas import drawn
from tokencover.viewing.marks import marks_of
from tokencover.viewing.views import grid_of
from tokencover.viewing.words import numbered

_SMALLEST = 768


def overlay(
    picture: Image.Image,
    trace: Trace,
    words: Sequence[str] | None = None,
    *,
    medium: int = 0,
    frame: int = 0,
) -> Image.Image:
    """Fade what was dropped, and frame what was kept.

    Prompt centres are framed orange, visual centres blue, tokens of methods that have neither
    pink. The picture has nothing else on it; for captions and a legend see `panels`.

    Parameters
    ----------
    picture : Image
        What the model was shown, or the frame of a video. A small one is enlarged.
    trace : Trace
        What happened to the sample.
    words : sequence of str, optional
        The word of each prompt centre, from `words_of_centers`; each prompt centre then bears the
        number of its word, 1 for the word that chose most.
    medium, frame : int
        Which image or video of the prompt, and which view or frame of it.
    """
    grid = grid_of(trace, medium, frame)
    scale = max(1, -(-_SMALLEST // max(picture.size)))
    large = picture.convert("RGB").resize(
        (picture.width * scale, picture.height * scale), Image.Resampling.NEAREST
    )
    marks = marks_of(trace, words)
    return drawn(large, grid, marks.of_view(medium, frame), numbered(words))
