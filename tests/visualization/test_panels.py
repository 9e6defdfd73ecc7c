"""All images of a prompt in one, by their pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import tokencover as tc
from tests.visualization.traces import Place, make_trace, raster
from tokencover.colors import KEPT_COLOR, PROMPT_COLOR, VISUAL_COLOR, Color
from tokencover.visualization import panels
from tokencover.visualization.still import GAP, MARGIN, WIDEST

GROUND, FADED = (40, 160, 40), (201, 231, 201)
Box = tuple[int, int, int, int]
"""Left, top, right and bottom."""


def plain(width: int = 60, height: int = 60, color: Color = GROUND) -> Image.Image:
    return Image.new("RGB", (width, height), color)


AREA = (GROUND, FADED, PROMPT_COLOR, VISUAL_COLOR, KEPT_COLOR)


def areas(sheet: Image.Image, least: int = 60) -> list[Box]:
    """Where the images are: areas of ground, in reading order; the legend's are smaller."""
    pixels = np.asarray(sheet)
    left_over = np.any([np.all(pixels == color, -1) for color in AREA], 0)
    found = []
    while left_over.any():
        top, left = np.unravel_index(left_over.argmax(), left_over.shape)
        right = left + _run(left_over[top, left:])
        bottom = top + _run(left_over[top:, left])
        left_over[top:bottom, left:right] = False
        if right - left >= least:
            found.append((int(left), int(top), int(right), int(bottom)))
    return found


def _run(line: Any) -> int:
    """How many there are from the start without a gap."""
    return len(line) if line.all() else int(line.argmin())


def look(sheet: Image.Image, area: Box, grid: tuple[int, int]) -> Any:
    """Gives the corner and the middle of a token."""
    (left, top, right, bottom), (rows, columns) = area, grid
    wide, tall = (right - left) // columns, (bottom - top) // rows

    def token(row: int, column: int) -> tuple[Any, Any]:
        x, y = left + column * wide, top + row * tall
        # The lower right corner: the upper left one may bear a number.
        return sheet.getpixel((x + wide - 1, y + tall - 1)), sheet.getpixel(
            (x + wide // 2, y + tall * 3 // 4)
        )

    return token


def test_one_image_with_caption_and_legend() -> None:
    trace = make_trace({(0, 0): (4, 6)}, [(0, 0, 1, 2)], [(0, 0, 3, 5)])
    sheet = panels([plain(90, 60)], trace, ["red"], title="what color is it ?")
    (area,) = areas(sheet)
    assert (area[2] - area[0], area[3] - area[1]) == (768, 512)
    assert sheet.width == 768 + 2 * MARGIN
    token = look(sheet, area, (4, 6))
    for row in range(4):
        for column in range(6):
            expected = {(1, 2): (PROMPT_COLOR, GROUND), (3, 5): (VISUAL_COLOR, GROUND)}
            assert token(row, column) == expected.get((row, column), (FADED, FADED))
    below = sheet.crop((0, area[3] + 1, *sheet.size))
    shown = {color for _, color in below.getcolors(10_000) or []}
    assert {PROMPT_COLOR, VISUAL_COLOR} <= shown
    assert KEPT_COLOR not in shown
    without = panels([plain(90, 60)], trace)
    assert areas(without)[0][1] < area[1]  # no title
    assert without.height - areas(without)[0][3] < sheet.height - area[3]  # no words


def test_a_method_without_centers_has_one_color() -> None:
    kept: list[Place] = [(0, 0, 0, 0), (0, 0, 2, 1)]
    sheet = panels([plain()], make_trace({(0, 0): (3, 3)}, others=kept))
    token = look(sheet, areas(sheet)[0], (3, 3))
    assert token(0, 0) == token(2, 1) == (KEPT_COLOR, GROUND)
    shown = {color for _, color in sheet.getcolors(10_000) or []}
    assert not {PROMPT_COLOR, VISUAL_COLOR} & shown


def test_base_view_beside_tiles() -> None:
    grids = {(0, 0): (4, 4), (0, 1): (8, 12)}
    trace = make_trace(grids, [(0, 0, 3, 0)], [(0, 1, 7, 11)], newlines=True)
    sheet = panels([plain(90, 60)], trace)
    base, tiles = areas(sheet)
    assert base[1] == tiles[1]
    assert tiles[0] == base[2] + GAP
    assert look(sheet, base, (4, 4))(3, 0) == (PROMPT_COLOR, GROUND)
    assert look(sheet, base, (4, 4))(0, 0) == (FADED, FADED)
    assert look(sheet, tiles, (8, 12))(7, 11) == (VISUAL_COLOR, GROUND)
    assert look(sheet, tiles, (8, 12))(3, 0) == (FADED, FADED)


def test_a_video_is_a_strip_of_frames() -> None:
    grids = {(0, frame): (2, 2) for frame in range(6)}
    kept: list[Place] = [(0, frame, frame % 2, 0) for frame in range(6)]
    sheet = panels([[plain()] * 6], make_trace(grids, visual=kept))
    strip = areas(sheet)
    assert len(strip) == 6
    assert sheet.width <= WIDEST + 2 * MARGIN
    assert len({area[1] for area in strip}) == 2  # it goes on in a second row
    for frame, area in enumerate(strip):
        token = look(sheet, area, (2, 2))
        assert token(frame % 2, 0) == (VISUAL_COLOR, GROUND)
        assert token(1 - frame % 2, 0) == (FADED, FADED)


@pytest.mark.parametrize("count", [5, 6])
def test_frames_sharing_tokens_show_first(count: int) -> None:
    grids = {(0, frame): (2, 2) for frame in range(3)}
    kept: list[Place] = [(0, frame, row, column) for _, frame, row, column in raster(grids)]
    shades = [(10 * number, 0, 0) for number in range(count)]
    sheet = panels([[plain(color=shade) for shade in shades]], make_trace(grids, others=kept))
    seen = {color for _, color in sheet.getcolors(10_000) or []}
    assert [shade in seen for shade in shades] == [number % 2 == 0 for number in range(count)]


def test_each_prompt_image_has_panel() -> None:
    grids = {(0, 0): (2, 2), (1, 0): (3, 2), (2, 0): (2, 2), (2, 1): (2, 2)}
    trace = make_trace(grids, visual=[(1, 0, 2, 1)])
    sheet = panels([plain(), plain(40, 60), [plain(), plain()]], trace)
    drawn = areas(sheet)
    assert len(drawn) == 4
    assert look(sheet, drawn[1], (3, 2))(2, 1) == (VISUAL_COLOR, GROUND)
    for area, grid in zip(drawn, grids.values(), strict=True):
        assert look(sheet, area, grid)(0, 0) == (FADED, FADED)


def test_the_side_can_be_chosen() -> None:
    (area,) = areas(panels([plain(80, 40)], make_trace({(0, 0): (5, 10)}), side=200))
    assert (area[2] - area[0], area[3] - area[1]) == (200, 100)


def test_tokens_that_were_wiped_are_drawn() -> None:
    trace = make_trace({(0, 0): (3, 3)}, wiped=torch.tensor([4]))
    sheet = panels([plain()], trace)
    token = look(sheet, areas(sheet)[0], (3, 3))
    assert token(1, 1) == (KEPT_COLOR, GROUND)
    assert token(0, 0) == (FADED, FADED)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([plain()], "has 2 images or videos, 1 were given"),
        ([plain()] * 3, "has 2 images or videos, 3 were given"),
        ([plain(), plain()], "image 1 is a video of 3 frames"),
        ([plain(), [plain()] * 2], "has 3 frames of tokens, 2 images were given"),
        ([plain(), [plain()] * 4], "has 3 frames of tokens, 4 images were given"),
        ([plain(), []], "has 3 frames of tokens, 0 images were given"),
        (plain(), "must be a list"),
    ],
)
def test_images_not_of_prompt_raise(images: Any, message: str) -> None:
    grids = {(0, 0): (2, 2), (1, 0): (2, 2), (1, 1): (2, 2), (1, 2): (2, 2)}
    with pytest.raises(tc.InputError, match=message):
        panels(images, make_trace(grids))


def test_center_words_wrong_count_raises() -> None:
    trace = make_trace({(0, 0): (2, 2)}, [(0, 0, 0, 0)])
    with pytest.raises(tc.InputError, match="2 words were given for 1 prompt centers"):
        panels([plain()], trace, ["red", "blue"])
