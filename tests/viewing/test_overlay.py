"""What was kept, drawn on the picture."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

import tokencover as tc
from tests.runtime.test_matrix import built
from tests.zoo import ZOO
from tokencover.runtime import Trace
from tokencover.viewing import overlay
from tokencover.viewing.overlay import PROMPT_COLOR, VISUAL_COLOR


def traced(name: str, kind: str) -> Trace:
    entry, model = ZOO[name], built(name)
    inputs = entry.inputs(kind)
    with torch.no_grad(), tc.prune(model, tc.MoB(budget=6), prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    return run.trace[0]


def test_frames_stand_where_tokens_were_kept() -> None:
    trace = traced("llava", "single")
    assert trace.grids == {(0, 0): (5, 5)}
    picture = Image.new("RGB", (800, 800), (40, 160, 40))
    drawn = overlay(picture, trace)
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


def test_a_small_picture_is_enlarged() -> None:
    drawn = overlay(Image.new("RGB", (30, 20)), traced("llava", "single"))
    assert drawn.size[0] >= 768


@pytest.mark.parametrize(("name", "kind"), [("qwen2_vl", "video"), ("llava_next", "single")])
def test_every_frame_and_view_can_be_drawn(name: str, kind: str) -> None:
    trace = traced(name, kind)
    assert len(trace.grids) > 1
    for medium, frame in trace.grids:
        overlay(Image.new("RGB", (64, 64)), trace, medium=medium, frame=frame)


def test_a_frame_that_is_not_there_is_refused() -> None:
    with pytest.raises(tc.InputError, match="no frame 7 of picture 0"):
        overlay(Image.new("RGB", (64, 64)), traced("llava", "single"), frame=7)
