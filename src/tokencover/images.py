"""Images and videos from files: validated, upright, in RGB."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from tokencover.errors import InputError, TokenCoverWarning, import_extra

ImagePath = str | os.PathLike[str]

DEEP: Final = ("I", "I;16", "I;16B", "I;16L", "I;16N")
"""Pillow modes with more than eight bits, which it would cut at 255."""
FRAMES: Final = 8
"""Default number of frames of a video, that of `pebble-clips`."""
ANIMATIONS: Final = (".gif", ".webp", ".png", ".apng")
"""Suffixes of videos that Pillow reads."""
MAX_LARGE_FRAMES: Final = 100
"""Maximum number of frames of a video with the maximum number of pixels."""
VIDEOS: Final = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")


def open_image(
    source: ImagePath | BinaryIO | Image.Image, name: str = "", max_pixels: int | None = None
) -> Image.Image:
    """Open an image, and decode all of it; `name` is that in errors, by default the path.

    It is rotated by its EXIF data. Of an animation the first frame is used (with a
    `TokenCoverWarning`). 16 bits become 8, and CMYK and other color modes become RGB. Raises
    `InputError` if the file is missing, empty, truncated, not an image, or has more than
    `max_pixels` (by default ``PIL.Image.MAX_IMAGE_PIXELS``).
    """
    if isinstance(source, Image.Image):
        return _convert_to_rgb(source, name or "the image")
    name = name or str(source)
    if isinstance(source, str | os.PathLike):
        _check_file(Path(source), "image", name)
    with _explain_errors(name), Image.open(source) as opened:
        _check_size(opened.size, name, max_pixels)
        frames = getattr(opened, "n_frames", 1)
        opened.seek(0)
        opened.load()
        image = _convert_to_rgb(opened, name)
    if frames > 1:
        warnings.warn(
            f"{name} is animated: the first of its {frames} frames is used.",
            TokenCoverWarning,
            stacklevel=2,
        )
    return image


def validate_image_file(path: ImagePath) -> None:
    """Raise an error for a file that is missing, empty, too large or not an image.

    Only its header is read. Of a video file only existence is checked, and PyAV, which reads it.
    """
    source = Path(path)
    _check_file(source, "file")
    if source.suffix.lower() in VIDEOS:
        _import_reader(source)
        return
    with _explain_errors(str(source)), Image.open(source) as opened:
        _check_size(opened.size, str(source))


def open_video(
    path: ImagePath, frames: int = FRAMES, name: str = "", max_pixels: int | None = None
) -> tuple[Image.Image, ...]:
    """Open a video, and take evenly spaced frames; `name` is that in errors.

    Animated GIF, PNG and WebP files need no further package; others need PyAV, the extra
    ``tokencover[video]``. A frame has at most `max_pixels`, by default Pillow's limit, and all
    frames `MAX_LARGE_FRAMES` times as many. Raises `InputError` if the file cannot be read, has
    fewer frames, or is too large.
    """
    source = Path(path)
    name = name or str(source)
    _check_file(source, "video", name)
    if frames < 1:
        raise InputError(f"frames must be at least 1, got {frames}.")
    read_frames = _read_animation if source.suffix.lower() in ANIMATIONS else _read_video
    return tuple(read_frames(source, frames, name, max_pixels))


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """Raise our errors for what Pillow cannot do."""
    try:
        yield
    except InputError:
        raise
    except Image.DecompressionBombError as error:
        raise InputError(f"{name} is too large: {error} Make it smaller.") from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"Cannot read {name} as an image. Supported formats include PNG, JPEG and WebP."
        ) from error
    except Exception as error:  # decoders raise many types
        raise InputError(f"Cannot read {name}, it is truncated or damaged: {error}.") from error


def _check_file(path: Path, what: str, name: str = "") -> None:
    name = name or str(path)
    if path.is_dir():
        raise InputError(f"{name} is a folder: pass the {what} itself.")
    if not path.exists():
        raise InputError(f"there is no {what} {name}.")
    if path.stat().st_size == 0:
        raise InputError(f"{name} is empty (0 bytes), not a valid {what}.")


def _check_size(size: tuple[int, int], name: str, max_pixels: int | None = None) -> None:
    """Raise an error for a large image before it is decoded."""
    width, height = size
    limit = max_pixels or Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        alternative = "" if max_pixels else ", or raise PIL.Image.MAX_IMAGE_PIXELS"
        raise InputError(
            f"{name} is too large: it has {width} x {height} pixels, the maximum is {limit}. Make "
            f"it smaller{alternative}."
        )


def _convert_to_rgb(image: Image.Image, name: str) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if upright.mode in DEEP or upright.mode == "F":
        upright = _convert_to_8_bits(upright)
    try:
        return upright.convert("RGB")
    except ValueError as error:
        raise InputError(
            f"{name} has the color mode {upright.mode}, which cannot be converted to RGB. Save it "
            "as a PNG."
        ) from error


def _convert_to_8_bits(image: Image.Image) -> Image.Image:
    """Scale gray values of 16 bits, or of another range, to 8 bits."""
    values = np.asarray(image).astype(np.float64)
    top = full = float(values.max(initial=1.0))
    if image.mode in DEEP and top <= 65535:
        full = 255.0 if top <= 255 else 65535.0
    return Image.fromarray((np.clip(values / full, 0, 1) * 255).round().astype(np.uint8))


def _select_frames(total: int, wanted: int, name: str) -> list[int]:
    if total < wanted:
        raise InputError(
            f"{name} has {total} frames, {wanted} are needed. Pass a longer video, or set 'frames'."
        )
    return [(2 * number + 1) * total // (2 * wanted) for number in range(wanted)]


def _check_length(pixels: int, name: str, max_pixels: int | None) -> None:
    """Raise an error for a video that would take too long to decode."""
    if max_pixels is not None and pixels > MAX_LARGE_FRAMES * max_pixels:
        raise InputError(
            f"{name} is too long: its frames have {pixels} pixels in total, the maximum is "
            f"{MAX_LARGE_FRAMES * max_pixels}. Make it shorter or smaller."
        )


def _read_animation(
    path: Path, wanted: int, name: str, max_pixels: int | None
) -> list[Image.Image]:
    with _explain_errors(name), Image.open(path) as opened:
        _check_size(opened.size, name, max_pixels)
        total = getattr(opened, "n_frames", 1)
        _check_length(opened.width * opened.height * total, name, max_pixels)
        indices = _select_frames(total, wanted, name)
        frames: Iterator[Image.Image] = ImageSequence.Iterator(opened)
        selected = {
            index: frame.convert("RGB") for index, frame in enumerate(frames) if index in indices
        }
    return [selected[index] for index in indices]


def _read_video(
    path: Path, wanted: int, name: str, max_pixels: int | None
) -> Sequence[Image.Image]:
    library = _import_reader(path)
    try:
        total = pixels = 0
        with library.open(str(path)) as video:
            for frame in video.decode(video=0):
                total += 1
                pixels += frame.width * frame.height
                if max_pixels is not None:
                    _check_size((frame.width, frame.height), name, max_pixels)
                _check_length(pixels, name, max_pixels)
        indices = _select_frames(total, wanted, name)
        with library.open(str(path)) as video:
            decoded = enumerate(video.decode(video=0))
            selected = {index: frame.to_image() for index, frame in decoded if index in indices}
    except (library.FFmpegError, IndexError) as error:
        raise InputError(f"Cannot read {name} as a video: {error}.") from error
    return [selected[index] for index in indices]


def _import_reader(path: Path) -> Any:
    purpose, otherwise = f"reading the video file {path}", "pass its frames as images"
    return import_extra("av", purpose, "tokencover[video]", otherwise)
