"""Pictures and clips from files: checked, upright, in RGB; what cannot be shown is told by name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

from tokencover.errors import InputError, TokenCoverWarning
from tokencover.extras import import_extra

Place = str | os.PathLike[str]

DEEP: Final = ("I", "I;16", "I;16B", "I;16L", "I;16N")
"""Modes of Pillow with more than eight bits, which it would cut off at 255."""
FRAMES: Final = 8
"""Of a clip, if nothing is said: as many as `pebble-clips` is shown."""
ANIMATIONS: Final = (".gif", ".webp", ".png", ".apng")
"""Files of clips that Pillow reads by itself."""
MOST_LARGE_FRAMES: Final = 100
"""Frames of a clip at most, if they are as large as a bound on pixels allows."""
VIDEOS: Final = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")


def open_picture(
    source: Place | BinaryIO | Image.Image, name: str = "", most_pixels: int | None = None
) -> Image.Image:
    """Open a picture, and read it whole.

    It is turned as its EXIF data say, of an animation the first frame is taken (with a
    `TokenCoverWarning`), 16 bits become 8, and CMYK and all others become RGB.

    Parameters
    ----------
    source : path, binary file or Image
        What to open; of an open file nothing is known but its bytes.
    name : str
        What the errors call it; by default its path.
    most_pixels : int, optional
        Larger pictures are refused; by default Pillow's own limit.

    Raises
    ------
    InputError
        If there is no such file, it is empty, cut off or no picture, or too large: the limit is
        ``PIL.Image.MAX_IMAGE_PIXELS``.
    """
    if isinstance(source, Image.Image):
        return _make_rgb(source, name or "the picture")
    name = name or str(source)
    if isinstance(source, str | os.PathLike):
        _check_file(Path(source), "picture", name)
    with _tell_trouble(name), Image.open(source) as opened:
        _check_size(opened, name, most_pixels)
        frames = getattr(opened, "n_frames", 1)
        opened.seek(0)
        opened.load()
        picture = _make_rgb(opened, name)
    if frames > 1:
        warnings.warn(
            f"{name} is animated: the first of its {frames} frames is shown.",
            TokenCoverWarning,
            stacklevel=2,
        )
    return picture


def check_picture(path: Place) -> None:
    """Refuse a file that is missing, empty, too large or no picture, from its beginning alone.

    A video file is only looked for, and what reads it: `open_clip` says what is wrong with it.
    """
    source = Path(path)
    _check_file(source, "file")
    if source.suffix.lower() in VIDEOS:
        _import_reader(source)
        return
    with _tell_trouble(str(source)), Image.open(source) as opened:
        _check_size(opened, str(source))


def open_clip(
    path: Place, frames: int = FRAMES, name: str = "", most_pixels: int | None = None
) -> tuple[Image.Image, ...]:
    """Open a clip, and take frames evenly spaced over it.

    Animated GIF, PNG and WebP files need nothing else; all others are read by PyAV, which the extra
    ``tokencover[video]`` brings.

    Parameters
    ----------
    path : path
        The file.
    frames : int
        How many to take.
    name : str
        What the errors call it; by default its path.
    most_pixels : int, optional
        Clips with larger frames are refused, and those with so many that all of them would be
        `MOST_LARGE_FRAMES` such large ones; by default Pillow's own limit for each frame.

    Raises
    ------
    InputError
        If the file cannot be read, has fewer frames, is too large, or PyAV is not installed.
    """
    source = Path(path)
    name = name or str(source)
    _check_file(source, "clip", name)
    if frames < 1:
        raise InputError(f"a clip needs at least one frame, got {frames}.")
    animated = source.suffix.lower() in ANIMATIONS
    take = _take_animation if animated else _take_video
    return tuple(take(source, frames, name, most_pixels))


@contextmanager
def _tell_trouble(name: str) -> Iterator[None]:
    """Say in our words what Pillow could not do."""
    try:
        yield
    except InputError:
        raise
    except Image.DecompressionBombError as error:
        raise InputError(f"{name} is too large: {error} Make it smaller.") from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"{name} is no picture, or of a kind that Pillow does not read: give a PNG, JPEG or "
            "WebP file."
        ) from error
    except Exception as error:  # decoders raise whatever they stumble over
        raise InputError(f"{name} cannot be read, it is cut off or damaged: {error}.") from error


def _check_file(path: Path, what: str, name: str = "") -> None:
    name = name or str(path)
    if path.is_dir():
        raise InputError(f"{name} is a folder: give the {what} itself.")
    if not path.exists():
        raise InputError(f"there is no {what} {name}.")
    if path.stat().st_size == 0:
        raise InputError(f"{name} is empty (0 bytes): it is no {what}.")


def _check_size(picture: Image.Image, name: str, given: int | None = None) -> None:
    """Refuse what would fill the memory, before it is unpacked."""
    width, height = picture.size
    most = given or Image.MAX_IMAGE_PIXELS
    if most is not None and width * height > most:
        way_out = "" if given else ", or raise PIL.Image.MAX_IMAGE_PIXELS"
        raise InputError(
            f"{name} is too large: it has {width} x {height} pixels, at most {most} are read. Make "
            f"it smaller{way_out}."
        )


def _make_rgb(picture: Image.Image, name: str) -> Image.Image:
    upright = ImageOps.exif_transpose(picture)
    if upright.mode in DEEP or upright.mode == "F":
        upright = _make_eight_bit(upright)
    try:
        return upright.convert("RGB")
    except ValueError as error:
        raise InputError(
            f"{name} has colours of the kind {upright.mode}, which cannot be made RGB: save it as "
            "a PNG."
        ) from error


def _make_eight_bit(picture: Image.Image) -> Image.Image:
    """Grey values of 16 bits, or of another range, spread over 8 bits."""
    values = np.asarray(picture).astype(np.float64)
    top = float(values.max(initial=0.0))
    full = 65535.0 if picture.mode in DEEP and 255 < top <= 65535 else max(top, 1.0)
    if picture.mode in DEEP and top <= 255:
        full = 255.0
    return Image.fromarray((np.clip(values / full, 0, 1) * 255).round().astype(np.uint8))


def _choose_frames(total: int, wanted: int, name: str) -> list[int]:
    if total < wanted:
        raise InputError(
            f"{name} has {total} frames, {wanted} are to be shown: give another clip, or 'frames'."
        )
    return [(2 * number + 1) * total // (2 * wanted) for number in range(wanted)]


def _check_length(pixels: int, name: str, most: int | None) -> None:
    """Refuse a clip that would take too long to unpack."""
    if most is not None and pixels > MOST_LARGE_FRAMES * most:
        raise InputError(
            f"{name} is too long: all frames have {pixels} pixels together, at most "
            f"{MOST_LARGE_FRAMES * most} are read. Make it shorter or smaller."
        )


def _take_animation(
    path: Path, wanted: int, name: str, most_pixels: int | None
) -> list[Image.Image]:
    with _tell_trouble(name), Image.open(path) as opened:
        _check_size(opened, name, most_pixels)
        total = getattr(opened, "n_frames", 1)
        _check_length(opened.width * opened.height * total, name, most_pixels)
        places = _choose_frames(total, wanted, name)
        frames: Iterator[Image.Image] = ImageSequence.Iterator(opened)
        chosen = {
            place: frame.convert("RGB") for place, frame in enumerate(frames) if place in places
        }
    return [chosen[place] for place in places]


def _take_video(
    path: Path, wanted: int, name: str, most_pixels: int | None
) -> Sequence[Image.Image]:
    library = _import_reader(path)
    try:
        total = pixels = 0
        with library.open(str(path)) as film:
            for frame in film.decode(video=0):
                total += 1
                pixels += frame.width * frame.height
                if most_pixels is not None and frame.width * frame.height > most_pixels:
                    raise InputError(
                        f"{name} is too large: it has {frame.width} x {frame.height} pixels, at "
                        f"most {most_pixels} are read. Make it smaller."
                    )
                _check_length(pixels, name, most_pixels)
        places = _choose_frames(total, wanted, name)
        with library.open(str(path)) as film:
            decoded = enumerate(film.decode(video=0))
            chosen = {place: frame.to_image() for place, frame in decoded if place in places}
    except (library.FFmpegError, IndexError) as error:
        raise InputError(f"{name} cannot be read as a video: {error}.") from error
    return [chosen[place] for place in places]


def _import_reader(path: Path) -> Any:
    return import_extra(
        "av", f"reading the video file {path}", "tokencover[video]", "give its frames as pictures"
    )
