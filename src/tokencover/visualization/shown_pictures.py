"""What a model was shown: views of an image, frames of a video, and the part that it saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from tokencover.errors import InputError
from tokencover.prompting import Medium
from tokencover.pruning import Trace

_VIEWS = ("base view", "tiles")


@dataclass(frozen=True, slots=True)
class ShownView:
    """One view of an image or one frame of a video, with its grid of tokens."""

    title: str
    picture: Image.Image
    medium: int
    frame: int
    grid: tuple[int, int]


def find_grid(trace: Trace, medium: int, frame: int) -> tuple[int, int]:
    """(rows, columns) of a view or frame."""
    if (medium, frame) not in trace.grids:
        raise InputError(
            f"the prompt has no frame {frame} of picture {medium}; it has {sorted(trace.grids)}."
        )
    return trace.grids[medium, frame]


def check_media(media: Sequence[Medium], trace: Trace) -> None:
    """Refuse media that are not those of the prompt."""
    count = len({medium for medium, _ in trace.grids})
    if isinstance(media, Image.Image):
        raise InputError("pictures must be a list, one for each picture of the prompt: [picture].")
    if len(media) != count:
        raise InputError(
            f"the prompt has {count} pictures or videos, {len(media)} were given: give one each, "
            "in the order of the prompt, a video as the list of its frames."
        )


def list_views(picture: Medium, trace: Trace, medium: int) -> list[ShownView]:
    """What the model saw of one image or video.

    An image has one view, or two: the base view, and all tiles as one picture. Frames of a video
    may share a grid of tokens (two of them in Qwen2-VL); the first of those is shown.
    """
    frames = sorted(frame for owner, frame in trace.grids if owner == medium)
    if not frames:
        raise InputError(f"the prompt has no picture {medium}; it has {sorted(trace.grids)}.")
    if isinstance(picture, Image.Image):
        pictures, titles = [picture] * len(frames), _title_views(medium, len(frames))
    else:
        pictures, titles = _pick_frames(picture, medium, len(frames))
    return [
        ShownView(title, shown, medium, frame, find_grid(trace, medium, frame))
        for title, shown, frame in zip(titles, pictures, frames, strict=True)
    ]


def _title_views(medium: int, count: int) -> list[str]:
    if count == 1:
        return [f"picture {medium + 1}"]
    if count == len(_VIEWS):
        return [f"picture {medium + 1}, {view}" for view in _VIEWS]
    raise InputError(f"picture {medium} is a video of {count} frames: give the list of its frames.")


def _pick_frames(
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


def as_seen(picture: Image.Image, processor: Any) -> Image.Image:
    """The picture as an image processor cuts or pads it, so that the grid of tokens fits it.

    Many processors (CLIP's, so LLaVA-1.5's) scale the shorter side and cut the middle; a wide
    picture then loses its left and right. Processors that tile a picture, or scale all of it, show
    all of it.

    Parameters
    ----------
    picture : Image
        Any picture.
    processor
        The model's processor or image processor.
    """
    settings = getattr(processor, "image_processor", processor)
    if getattr(settings, "image_grid_pinpoints", None) is not None:
        return picture  # cut into tiles; nothing is lost
    if getattr(settings, "do_pad", False) and hasattr(settings, "pad_to_square"):
        picture = _pad_to_square(picture.convert("RGB"), settings.image_mean)
    if not getattr(settings, "do_center_crop", False):
        return picture
    scaled = _scale_size(picture.size, settings) if settings.do_resize else picture.size
    crop = settings.crop_size["width"], settings.crop_size["height"]
    # In pixels of the picture; beyond its edges there is black, as the processor has it.
    width = round(picture.width * crop[0] / scaled[0])
    height = round(picture.height * crop[1] / scaled[1])
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    return picture.crop((left, top, left + width, top + height))


def medium_as_seen(medium: Medium, processor: Any) -> Medium:
    """A picture, or all frames of a video, as the processor cuts or pads it; see `as_seen`."""
    if isinstance(medium, Image.Image):
        return as_seen(medium, processor)
    settings = getattr(processor, "video_processor", processor)
    return [as_seen(frame, settings) for frame in medium]


def _scale_size(size: tuple[int, int], settings: Any) -> tuple[float, float]:
    """Width and height after the processor's resizing."""
    shortest = settings.size.get("shortest_edge")
    if shortest is None:
        return settings.size["width"], settings.size["height"]
    width, height = size
    scale = shortest / min(size)
    return width * scale, height * scale


def _pad_to_square(picture: Image.Image, mean: list[float]) -> Image.Image:
    side = max(picture.size)
    red, green, blue = (int(part * 255) for part in mean)
    sheet = Image.new("RGB", (side, side), (red, green, blue))
    sheet.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return sheet
