"""What a model was shown: views of an image, frames of a video, without cropped parts."""

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
    image: Image.Image
    medium: int
    frame: int
    grid: tuple[int, int]


def get_grid(trace: Trace, medium: int, frame: int) -> tuple[int, int]:
    """Return (rows, columns) of a view or frame."""
    if (medium, frame) not in trace.grids:
        raise InputError(
            f"the prompt has no frame {frame} of image {medium}; it has {sorted(trace.grids)}."
        )
    return trace.grids[medium, frame]


def check_media(media: Sequence[Medium], trace: Trace) -> None:
    """Raise an error for media that are not those of the prompt."""
    count = len({medium for medium, _ in trace.grids})
    if isinstance(media, Image.Image):
        raise InputError("images must be a list with one entry per image of the prompt: [image].")
    if len(media) != count:
        raise InputError(
            f"the prompt has {count} images or videos, {len(media)} were given: pass all of them "
            "in the order of the prompt, a video as the list of its frames."
        )


def list_views(image: Medium, trace: Trace, medium: int) -> list[ShownView]:
    """Return what the model saw of one image or video.

    An image has one view, or two: the base view, and all tiles as one image. Frames of a video may
    share a grid of tokens (two of them in Qwen2-VL); the first of those is drawn.
    """
    frames = sorted(frame for owner, frame in trace.grids if owner == medium)
    if not frames:
        raise InputError(f"the prompt has no image {medium}; it has {sorted(trace.grids)}.")
    if isinstance(image, Image.Image):
        images, titles = [image] * len(frames), _title_views(medium, len(frames))
    else:
        images, titles = _pick_frames(image, medium, len(frames))
    return [
        ShownView(title, shown, medium, frame, get_grid(trace, medium, frame))
        for title, shown, frame in zip(titles, images, frames, strict=True)
    ]


def _title_views(medium: int, count: int) -> list[str]:
    if count == 1:
        return [f"image {medium + 1}"]
    if count == len(_VIEWS):
        return [f"image {medium + 1}, {view}" for view in _VIEWS]
    raise InputError(f"image {medium} is a video of {count} frames: pass the list of its frames.")


def _pick_frames(
    images: Sequence[Image.Image], medium: int, count: int
) -> tuple[list[Image.Image], list[str]]:
    together = max(1, -(-len(images) // count))
    starts = range(0, len(images), together)
    if len(starts) != count:
        raise InputError(
            f"video {medium} has {count} frames of tokens, {len(images)} images were given: "
            "pass the frames that the model received."
        )
    titles = []
    for start in starts:
        stop = min(start + together, len(images))
        name = f"frame {stop}" if stop == start + 1 else f"frames {start + 1}-{stop}"
        titles.append(f"video {medium + 1}, {name}")
    return [images[start] for start in starts], titles


def as_seen(image: Image.Image, processor: Any) -> Image.Image:
    """Crop or pad an image as the processor does, so the grid of tokens fits it.

    Many processors (CLIP's, so LLaVA-1.5's) scale the shorter side and crop the center, so a wide
    image loses its left and right. Processors that tile or scale the whole image keep all of it.

    Parameters
    ----------
    image : Image
        Any image.
    processor
        The model's processor or image processor.
    """
    settings = getattr(processor, "image_processor", processor)
    if getattr(settings, "image_grid_pinpoints", None) is not None:
        return image  # cut into tiles: nothing is cropped
    if getattr(settings, "do_pad", False) and hasattr(settings, "pad_to_square"):
        image = _pad_to_square(image.convert("RGB"), settings.image_mean)
    if not getattr(settings, "do_center_crop", False):
        return image
    scaled = _scale_size(image.size, settings) if settings.do_resize else image.size
    crop = settings.crop_size["width"], settings.crop_size["height"]
    # In pixels of the image. Beyond its edges the crop is black, as in the processor.
    width = round(image.width * crop[0] / scaled[0])
    height = round(image.height * crop[1] / scaled[1])
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def medium_as_seen(medium: Medium, processor: Any) -> Medium:
    """Crop or pad an image, or all frames of a video; see `as_seen`."""
    if isinstance(medium, Image.Image):
        return as_seen(medium, processor)
    settings = getattr(processor, "video_processor", processor)
    return [as_seen(frame, settings) for frame in medium]


def _scale_size(size: tuple[int, int], settings: Any) -> tuple[float, float]:
    """Return width and height after the processor's resizing."""
    shortest = settings.size.get("shortest_edge")
    if shortest is None:
        return settings.size["width"], settings.size["height"]
    width, height = size
    scale = shortest / min(size)
    return width * scale, height * scale


def _pad_to_square(image: Image.Image, mean: list[float]) -> Image.Image:
    side = max(image.size)
    red, green, blue = (int(part * 255) for part in mean)
    sheet = Image.new("RGB", (side, side), (red, green, blue))
    sheet.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    return sheet
