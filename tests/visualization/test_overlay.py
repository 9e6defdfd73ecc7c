"""What was kept, drawn on the image."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

import tokencover as tc
from tests.pruning.test_matrix import built
from tests.visualization.traces import make_trace
from tests.zoo import ZOO
from tokencover.colors import PROMPT_COLOR, VISUAL_COLOR
from tokencover.pruning import Trace
from tokencover.visualization import describe, list_legend, overlay, panels, tint_tokens


def run_traced(name: str, kind: str) -> Trace:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs(kind)
    with torch.no_grad(), tc.prune(model, tc.MoB(budget=6), prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    return run.trace[0]


def test_frames_stand_where_tokens_were_kept() -> None:
    trace = run_traced("llava", "single")
    assert trace.grids == {(0, 0): (5, 5)}
    image = Image.new("RGB", (800, 800), (40, 160, 40))
    drawn = overlay(image, trace)
    assert drawn.size == (800, 800)
    kept = {
        (int(row), int(column)): int(index) in trace.prompt_centers.tolist()
        for row, column, index in zip(trace.row, trace.column, trace.kept, strict=True)
    }
    assert len(kept) == 6
    for row in range(5):
        for column in range(5):
            corner = drawn.getpixel((column * 160, row * 160))
            middle = drawn.getpixel((column * 160 + 80, row * 160 + 80))
            if (row, column) in kept:
                assert corner == (PROMPT_COLOR if kept[row, column] else VISUAL_COLOR)
                assert middle == (40, 160, 40)
            else:
                assert isinstance(middle, tuple)
                assert min(middle) > 180  # faded


def test_a_small_image_is_enlarged() -> None:
    drawn = overlay(Image.new("RGB", (30, 20)), run_traced("llava", "single"))
    assert drawn.size[0] >= 768


def test_prompt_centers_show_word_number() -> None:
    trace = make_trace({(0, 0): (2, 4)}, [(0, 0, 0, 0), (0, 0, 0, 2), (0, 0, 1, 0)], [(0, 0, 1, 2)])
    image = Image.new("RGB", (800, 400), (40, 160, 40))
    drawn = overlay(image, trace, ["bus", "red", "red"])

    def tag(row: int, column: int) -> Image.Image:
        left, top = 200 * column, 200 * row
        return drawn.crop((left + 3, top + 3, left + 40, top + 40))

    assert tag(0, 2) == tag(1, 0)  # both were chosen by "red"
    assert tag(0, 0) != tag(0, 2)
    assert PROMPT_COLOR not in {color for _, color in tag(1, 2).getcolors() or []}
    assert tag(1, 2) == overlay(image, trace).crop((403, 203, 440, 240))


MANY_VIEWS = [("qwen2_vl", "video"), ("llava_next", "single"), ("video_llava", "video")]


@pytest.mark.parametrize(("name", "kind"), MANY_VIEWS)
def test_every_frame_and_view_can_be_drawn(name: str, kind: str) -> None:
    trace = run_traced(name, kind)
    assert len(trace.grids) > 1
    for medium, frame in trace.grids:
        overlay(Image.new("RGB", (64, 64)), trace, medium=medium, frame=frame)


@pytest.mark.parametrize(("name", "kind"), [*MANY_VIEWS, ("llava_next", "two_images")])
def test_draw_all_images_of_prompt(name: str, kind: str) -> None:
    trace, image = run_traced(name, kind), Image.new("RGB", (64, 64), (40, 160, 40))
    frames = sum(medium == 0 for medium, _ in trace.grids)
    media = len({medium for medium, _ in trace.grids})
    sheet = panels([[image] * frames] if kind == "video" else [image] * media, trace)
    assert (40, 160, 40) in {color for _, color in sheet.getcolors(100_000) or []}
    placeless = int((trace.row < 0).sum())
    assert ("without a grid location" in describe(trace)) == (placeless > 0)
    assert (name == "qwen2_vl") == (placeless == 0)


def test_missing_frame_raises() -> None:
    with pytest.raises(tc.InputError, match="no frame 7 of image 0"):
        overlay(Image.new("RGB", (64, 64)), run_traced("llava", "single"), frame=7)


def test_tiny_tokens_tinted_by_role() -> None:
    trace = make_trace({(0, 0): (2, 3)}, prompt=[(0, 0, 0, 1)], visual=[(0, 0, 1, 2)])
    tiny = tint_tokens(Image.new("RGB", (30, 20), (0, 0, 0)), trace)
    assert tiny.size == (6, 4)
    orange, blue, dropped = (tiny.getpixel(place) for place in ((2, 0), (5, 3), (0, 0)))
    assert orange == tuple(int(0.65 * part) for part in PROMPT_COLOR)
    assert blue == tuple(int(0.65 * part) for part in VISUAL_COLOR)
    assert dropped == (191, 191, 191)
    texts = [text for _, text in list_legend(trace)]
    assert texts == ["chosen for the question", "chosen to cover the rest"]
