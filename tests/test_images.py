"""Images as people have them: damaged, deep, turned, animated, huge, or no images at all."""

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
from tokencover.images import _check_length, open_image, open_video, validate_image_file

RED, BLUE = (255, 0, 0), (0, 0, 255)


def two_colors(size: tuple[int, int] = (8, 4)) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(BLUE, (size[0] // 2, 0, *size))
    return image


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
    path.write_text("not an image")


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def make_folder(path: Path) -> None:
    path.mkdir()


BAD: list[tuple[Callable[[Path], object], str, bool]] = [
    (write_bomb, "x.png is too large", True),
    (write_large, "x.png is too large: it has 10000 x 10000 pixels", True),
    (write_truncated, "Cannot read .*x.png, it is truncated or damaged", False),
    (write_text, "Cannot read .*x.png as an image", True),
    (write_nothing, r"x.png is empty \(0 bytes\)", True),
    (make_folder, "x.png is a folder", True),
    (lambda path: None, "there is no .*x.png", True),
]
"""How to make it, the message, and whether the header shows it."""


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(("make", "message", "early"), BAD)
def test_errors_name_the_file(
    tmp_path: Path, make: Callable[[Path], object], message: str, early: bool
) -> None:
    make(tmp_path / "x.png")
    with pytest.raises(InputError, match=message):
        open_image(tmp_path / "x.png")
    if early:
        with pytest.raises(InputError, match=message):
            validate_image_file(tmp_path / "x.png")
    else:
        validate_image_file(tmp_path / "x.png")


def test_image_rotated_by_exif_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by a quarter to the right
    two_colors().save(tmp_path / "turned.png", exif=exif)
    found = open_image(tmp_path / "turned.png")
    assert found.size == (4, 8)
    assert (found.getpixel((0, 0)), found.getpixel((0, 7))) == (RED, BLUE)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_spread_over_eight(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"deep.{suffix}")
    found = open_image(tmp_path / f"deep.{suffix}")
    assert [found.getpixel((column, 0)) for column in range(4)] == [
        (value, value, value) for value in (0, 1, 128, 255)
    ]


def test_inks_become_light(tmp_path: Path) -> None:
    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(tmp_path / "ink.tif")
    assert open_image(tmp_path / "ink.tif").getpixel((0, 0)) == RED


def save_animation(path: Path, frames: int = 9) -> None:
    images = [Image.new("RGB", (8, 8), (28 * number, 0, 0)) for number in range(frames)]
    images[0].save(path, save_all=True, append_images=images[1:], duration=50)


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_animation_opens_first_frame(tmp_path: Path, suffix: str) -> None:
    save_animation(tmp_path / f"moving.{suffix}")
    with pytest.warns(TokenCoverWarning, match=rf"moving.{suffix} is animated: the first of its 9"):
        found = open_image(tmp_path / f"moving.{suffix}")
    assert found.getpixel((0, 0)) == (0, 0, 0)


def test_a_video_gives_frames_evenly_spaced(tmp_path: Path) -> None:
    save_animation(tmp_path / "moving.gif")
    reds = [frame.getpixel((0, 0)) for frame in open_video(tmp_path / "moving.gif", 3)]
    assert [red // 28 for red, _, _ in reds] == [1, 4, 7]  # type: ignore[misc]
    with pytest.raises(InputError, match=r"moving.gif has 9 frames, 10 are needed"):
        open_video(tmp_path / "moving.gif", 10)


def test_video_files_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    (tmp_path / "x.mp4").write_bytes(b"something")
    for read in (open_video, validate_image_file):
        with pytest.raises(MissingPackageError, match=r"x.mp4 needs av.*tokencover\[video\]"):
            read(tmp_path / "x.mp4")


def test_open_file_name_appears_in_errors() -> None:
    with pytest.raises(InputError, match="Cannot read the upload as an image"):
        open_image(io.BytesIO(b"<script>"), "the upload")
    data = io.BytesIO()
    two_colors().save(data, "PNG")
    data.seek(0)
    assert open_image(data).size == (8, 4)


def test_videos_have_bounds_and_a_name_too(tmp_path: Path) -> None:
    path = tmp_path / "secret.gif"
    frames = [Image.new("L", (40, 30), shade) for shade in range(0, 160, 2)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    assert len(open_video(path, max_pixels=1200)) == 8
    with pytest.raises(InputError, match="your video is too large: it has 40 x 30 pixels"):
        open_video(path, name="your video", max_pixels=1199)
    with pytest.raises(InputError, match="the maximum is 100000"):
        _check_length(120 * 1200, "your video", 1000)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"^your video is empty") as told:
        open_video(path, name="your video")
    assert "secret" not in str(told.value)
