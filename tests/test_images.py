"""Pictures as people have them: damaged, deep, turned, animated, huge, or no pictures at all."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tokencover.errors import InputError, MissingPackageError, TokenCoverWarning
from tokencover.images import _check_length, check_picture, open_clip, open_picture

RED, BLUE = (255, 0, 0), (0, 0, 255)


def two_colors(size: tuple[int, int] = (8, 4)) -> Image.Image:
    """Red on the left, blue on the right."""
    picture = Image.new("RGB", size, RED)
    picture.paste(BLUE, (size[0] // 2, 0, *size))
    return picture


def write_bomb(path: Path) -> None:
    """A PNG whose head promises 30,000 x 30,000 pixels."""

    def piece(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 30000, 30000, 8, 2, 0, 0, 0)
    body = piece(b"IHDR", head) + piece(b"IDAT", zlib.compress(b"")) + piece(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)


def write_large(path: Path) -> None:
    """More than the limit, less than twice as much, where Pillow itself only warns."""
    Image.new("1", (10000, 10000)).save(path)


def write_truncated(path: Path) -> None:
    data = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(data, "JPEG")
    path.write_bytes(data.getvalue()[: len(data.getvalue()) // 2])


def write_text(path: Path) -> None:
    path.write_text("not a picture")


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def make_folder(path: Path) -> None:
    path.mkdir()


BAD: list[tuple[Callable[[Path], object], str, bool]] = [
    (write_bomb, "x.png is too large", True),
    (write_large, "x.png is too large: it has 10000 x 10000 pixels", True),
    (write_truncated, "x.png cannot be read, it is cut off or damaged", False),
    (write_text, "x.png is no picture", True),
    (write_nothing, r"x.png is empty \(0 bytes\)", True),
    (make_folder, "x.png is a folder", True),
    (lambda path: None, "there is no .*x.png", True),
]
"""How to make it, what is said, and whether the beginning of the file tells."""


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("make", "message", "early"), BAD)
def test_bad_files_are_told_by_name(
    tmp_path: Path, make: Callable[[Path], object], message: str, early: bool
) -> None:
    make(tmp_path / "x.png")
    with pytest.raises(InputError, match=message):
        open_picture(tmp_path / "x.png")
    if early:
        with pytest.raises(InputError, match=message):
            check_picture(tmp_path / "x.png")
    else:
        check_picture(tmp_path / "x.png")


def test_a_picture_is_turned_as_the_camera_was(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by a quarter to the right
    two_colors().save(tmp_path / "turned.png", exif=exif)
    found = open_picture(tmp_path / "turned.png")
    assert found.size == (4, 8)
    assert (found.getpixel((0, 0)), found.getpixel((0, 7))) == (RED, BLUE)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_spread_over_eight(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    found = open_picture(tmp_path / f"deep.{suffix}")
    assert [found.getpixel((column, 0)) for column in range(4)] == [
        (value, value, value) for value in (0, 1, 128, 255)
    ]


def test_inks_become_light(tmp_path: Path) -> None:
    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(tmp_path / "ink.tif")
    assert open_picture(tmp_path / "ink.tif").getpixel((0, 0)) == RED


def save_animation(path: Path, frames: int = 9) -> None:
    pictures = [Image.new("RGB", (8, 8), (28 * number, 0, 0)) for number in range(frames)]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=50)


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_of_an_animation_the_first_frame_is_shown(tmp_path: Path, suffix: str) -> None:
    save_animation(tmp_path / f"moving.{suffix}")
    with pytest.warns(TokenCoverWarning, match=rf"moving.{suffix} is animated: the first of its 9"):
        found = open_picture(tmp_path / f"moving.{suffix}")
    assert found.getpixel((0, 0)) == (0, 0, 0)


def test_a_clip_gives_frames_evenly_spaced(tmp_path: Path) -> None:
    save_animation(tmp_path / "moving.gif")
    reds = [frame.getpixel((0, 0)) for frame in open_clip(tmp_path / "moving.gif", 3)]
    assert [red // 28 for red, _, _ in reds] == [1, 4, 7]  # type: ignore[misc]
    with pytest.raises(InputError, match=r"moving.gif has 9 frames, 10 are to be shown"):
        open_clip(tmp_path / "moving.gif", 10)


def test_video_files_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    (tmp_path / "x.mp4").write_bytes(b"something")
    for read in (open_clip, check_picture):
        with pytest.raises(MissingPackageError, match=r"x.mp4 needs av.*tokencover\[video\]"):
            read(tmp_path / "x.mp4")


def test_an_open_file_has_a_name_for_errors() -> None:
    with pytest.raises(InputError, match="the upload is no picture"):
        open_picture(io.BytesIO(b"<script>"), "the upload")
    data = io.BytesIO()
    two_colors().save(data, "PNG")
    data.seek(0)
    assert open_picture(data).size == (8, 4)


def test_clips_have_bounds_and_a_name_too(tmp_path: Path) -> None:
    path = tmp_path / "secret.gif"
    frames = [Image.new("L", (40, 30), shade) for shade in range(0, 160, 2)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert len(open_clip(path, most_pixels=1200)) == 8
    with pytest.raises(InputError, match="your clip is too large: it has 40 x 30 pixels"):
        open_clip(path, name="your clip", most_pixels=1199)
    with pytest.raises(InputError, match="at most 100000 are read"):
        _check_length(120 * 1200, "your clip", 1000)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"^your clip is empty") as told:
        open_clip(path, name="your clip")
    assert "secret" not in str(told.value)
