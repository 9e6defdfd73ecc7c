"""Which pictures a prompt showed: the views of an image, the frames of a video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from tokencover.errors import InputError
from tokencover.prompting import Medium
from tokencover.runtime import Trace

_VIEWS = ("base view", "tiles")


@dataclass(frozen=True, slots=True)
class Shown:
    """One view of an image or one frame of a video, with its grid of tokens."""

    title: str
    picture: Image.Image
    medium: int
    frame: int
    grid: tuple[int, int]


def grid_of(trace: Trace, medium: int, frame: int) -> tuple[int, int]:
    """(rows, columns) of a view or frame."""
    if (medium, frame) not in trace.grids:
        raise InputError(
            f"the prompt has no frame {frame} of picture {medium}; it has {sorted(trace.grids)}."
        )
    return trace.grids[medium, frame]


def check_count(media: Sequence[Medium], trace: Trace) -> None:
    """Refuse media that are not those of the prompt."""
    count = len({medium for medium, _ in trace.grids})
    if isinstance(media, Image.Image):
        raise InputError("pictures must be a list, one for each picture of the prompt: [picture].")
    if len(media) != count:
        raise InputError(
            f"the prompt has {count} pictures or videos, {len(media)} were given: give one each, "
            "in the order of the prompt, a video as the list of its frames."
        )


def views_of(picture: Medium, trace: Trace, medium: int) -> list[Shown]:
    """What the model saw of one image or video.

    An image has one view, or two: the base view, and all tiles as one picture. Frames of a video
    may share a grid of tokens (two of them in Qwen2-VL); the first of those is shown.
    """
    frames = sorted(frame for owner, frame in trace.grids if owner == medium)
    if not frames:
        raise InputError(f"the prompt has no picture {medium}; it has {sorted(trace.grids)}.")
    if isinstance(picture, Image.Image):
        pictures, titles = [picture] * len(frames), _view_titles(medium, len(frames))
    else:
        pictures, titles = _frames_shown(picture, medium, len(frames))
    return [
        Shown(title, shown, medium, frame, grid_of(trace, medium, frame))
        for title, shown, frame in zip(titles, pictures, frames, strict=True)
    ]


def _view_titles(medium: int, count: int) -> list[str]:
    if count == 1:
        return [f"picture {medium + 1}"]
    if count == len(_VIEWS):
        return [f"picture {medium + 1}, {view}" for view in _VIEWS]
    raise InputError(f"picture {medium} is a video of {count} frames: give the list of its frames.")


def _frames_shown(
    pictures: Sequence[Image.Image], medium: int, count: int
) -> tuple[list[Image.Image], list[str]]:
    together = max(1, -(-len(pictures) // count))
    starts = range(0, len(pictures), together)
    if len(starts) != count:
        raise InputError(
            f"video {medium} has {count} frames of tokens, {len(pictures)} pictures were given: "
            "give the frames that the model was shown."
        )
    titles = []
    for start in starts:
        stop = min(start + together, len(pictures))
        name = f"frame {stop}" if stop == start + 1 else f"frames {start + 1}-{stop}"
        titles.append(f"video {medium + 1}, {name}")
    return [pictures[start] for start in starts], titles
