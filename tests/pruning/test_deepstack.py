"""Qwen3-VL adds visual features after its first blocks: to the right tokens in every row."""

from __future__ import annotations

import pytest
import torch

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import built, left_over
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Recipe, Side
from tests.zoo.oracle import blocked_forward_schedule

ROWS = {
    "text is longest": (Recipe((), 60, 9), Recipe((1,), 5, 10), Recipe((0,), 3, 11)),
    "longest row keeps all": (Recipe((2,), 70, 4), Recipe((0, 1), 4, 5)),
    "short rows keep all": (Recipe((2,), 3, 4), Recipe((0, 1), 40, 5)),
}


@pytest.mark.parametrize("stages", [(0,), (1,), (2,), (0, 2), (1, 3)])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("rows", ROWS.values(), ids=list(ROWS))
def test_rows_that_lose_nothing_do_not_disturb_the_others(
    rows: tuple[Recipe, ...], side: Side, stages: tuple[int, ...]
) -> None:
    entry, model = ZOO["qwen3_vl"], built("qwen3_vl")
    inputs = entry.collate([entry._sample(recipe) for recipe in rows], side)
    visual = entry.visual(inputs)
    counts = sorted(visual.sum(-1).tolist())
    budget = counts[-1] - 3 if 0 in counts else counts[-2] + 2  # some row has fewer than that
    method = KeepRandom(budget, stages)
    gone = dropped_by(method, inputs, visual)
    assert any(bool(each.any()) for each in gone.values())
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        found = model(**inputs, use_cache=False).logits
    left = left_over(inputs, gone)
    expected = blocked_forward_schedule(model, inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)
