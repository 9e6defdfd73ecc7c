"""The kept tokens drawn on the picture."""

from __future__ import annotations

from PIL import Image, ImageDraw

from tokencover.errors import InputError
from tokencover.runtime.trace import Trace

PROMPT_COLOR, VISUAL_COLOR = (255, 140, 0), (0, 120, 255)
"""Prompt centres are framed orange, visual centres (or all, if a method has no centres) blue."""
_SMALLEST = 768


def overlay(picture: Image.Image, trace: Trace, *, medium: int = 0, frame: int = 0) -> Image.Image:
    """Fade what was dropped, and frame what was kept.

    Parameters
    ----------
    picture : Image
        What the model was shown, or the frame of a video.
    trace : Trace
        What happened to the sample.
    medium, frame : int
        Which image or video of the prompt, and which view or frame of it.
    """
    rows, columns = _grid(trace, medium, frame)
    scale = max(1, -(-_SMALLEST // max(picture.size)))
    large = picture.convert("RGB").resize(
        (picture.width * scale, picture.height * scale), Image.Resampling.NEAREST
    )
    faded = Image.blend(large, Image.new("RGB", large.size, "white"), 0.75)
    draw = ImageDraw.Draw(faded)
    asked = set(trace.prompt_centers.tolist())
    here = (trace.medium == medium) & (trace.frame == frame) & (trace.row >= 0)
    for place in here.nonzero().squeeze(-1).tolist():
        row, column = int(trace.row[place]), int(trace.column[place])
        box = (
            column * large.width // columns,
            row * large.height // rows,
            (column + 1) * large.width // columns,
            (row + 1) * large.height // rows,
        )
        faded.paste(large.crop(box), box[:2])
        color = PROMPT_COLOR if int(trace.kept[place]) in asked else VISUAL_COLOR
        draw.rectangle((box[0], box[1], box[2] - 1, box[3] - 1), outline=color, width=scale)
    return faded


def _grid(trace: Trace, medium: int, frame: int) -> tuple[int, int]:
    if (medium, frame) not in trace.grids:
        raise InputError(
            f"the prompt has no frame {frame} of picture {medium}; it has {sorted(trace.grids)}."
        )
    return trace.grids[medium, frame]
