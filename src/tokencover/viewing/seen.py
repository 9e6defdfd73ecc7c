"""The part of a picture that a model is shown."""

from __future__ import annotations

from typing import Any

from PIL import Image

from tokencover.prompting import Medium


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
        picture = _square(picture.convert("RGB"), settings.image_mean)
    if not getattr(settings, "do_center_crop", False):
        return picture
    scaled = _scaled(picture.size, settings) if settings.do_resize else picture.size
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


def _scaled(size: tuple[int, int], settings: Any) -> tuple[float, float]:
    """Width and height after the processor's resizing."""
    shortest = settings.size.get("shortest_edge")
    if shortest is None:
        return settings.size["width"], settings.size["height"]
    width, height = size
    scale = shortest / min(size)
    return width * scale, height * scale


def _square(picture: Image.Image, mean: list[float]) -> Image.Image:
    side = max(picture.size)
    red, green, blue = (int(part * 255) for part in mean)
    sheet = Image.new("RGB", (side, side), (red, green, blue))
    sheet.paste(picture, ((side - picture.width) // 2, (side - picture.height) // 2))
    return sheet
