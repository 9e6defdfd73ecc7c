"""SCOPE: coverage times saliency, against a loop over fractions and a real vision encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.test_mob import states_before
from tests.methods.views import hand_made
from tests.zoo import ZOO
from tokencover.errors import InputError
from tokencover.methods.base import Choice, View
from tokencover.methods.scope import SCOPE, compute_saliency
from tokencover.pruning import prune

from .crops import (
    Image,
    Plain,
    Tiled,
    Token,
    Tower,
    Video,
    random_tower,
    seen,
    slow_scores,
    tower_with_rows,
)
from .test_greedy_sets import slow_cosines, slow_cover

BATCH: list[list[Image]] = [
    [Plain(), Tiled((1, 2), cut=(1, 0))],
    [Plain()],
    [Video(2)],
]


def crop_count(batch: list[list[Image]]) -> int:
    return sum(image.crops for images in batch for image in images)


def slow_saliency(tower: Tower, tokens: list[Token]) -> list[float]:
    return [
        slow_scores(tower, tower.feature_block, token.crop)[token.cell] if token.cell >= 0 else 0.0
        for token in tokens
    ]


def with_states(rows: Tensor, states: Tensor) -> View:
    """One image whose patches have these class-token logits and these states."""
    view, _ = seen(tower_with_rows({1: rows[None]}), [[Plain()]])
    return replace(view, hidden_states=states[None])


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("classes", [0, 1])
@pytest.mark.parametrize("budget", [1, 7, 14])
def test_it_keeps_what_the_formula_says(budget: int, classes: int, alpha: float) -> None:
    batch = BATCH if classes else BATCH[:2]
    tower = random_tower(crop_count(batch), side=3, classes=classes, seed=budget)
    view, tokens = seen(tower, batch, newlines=False)
    choice = SCOPE(budget, alpha).choose(view)
    for sample, (kept, mine) in enumerate(zip(choice.kept, tokens, strict=True)):
        table = slow_cosines(view.hidden_states[sample, : len(mine)])
        assert kept.tolist() == slow_cover(table, slow_saliency(tower, mine), budget, alpha)


@pytest.mark.parametrize("classes", [0, 1, 2])
def test_saliency_equals_vision_encoder_attention(classes: int) -> None:
    batch = BATCH if classes else BATCH[:2]
    tower = random_tower(crop_count(batch), classes=classes)
    view, tokens = seen(tower, batch)
    found = compute_saliency(view)
    for row, mine in zip(found, tokens, strict=True):
        torch.testing.assert_close(row[: len(mine)], torch.tensor(slow_saliency(tower, mine)))
        none = [place for place, token in enumerate(mine) if token.cell < 0]
        assert row[none].tolist() == [0.0] * len(none)
        assert not row[len(mine) :].any()


@pytest.mark.parametrize("side", [4, 12])
def test_a_batch_is_its_samples_alone(side: int) -> None:
    tower = random_tower(crop_count(BATCH), side=side)
    view, _ = seen(tower, BATCH, newlines=False)
    together, start = SCOPE(0.3).choose(view), 0
    for images, kept in zip(BATCH, together.kept, strict=True):
        count = crop_count([images])
        alone, _ = seen(tower.only(slice(start, start + count)), [images], newlines=False)
        assert torch.equal(SCOPE(0.3).choose(alone).kept[0], kept)
        start += count


def test_without_saliency_it_is_facility_location() -> None:
    """The largest group first, the loner last, whatever is attended to."""
    x, y, z = torch.eye(3)
    states = torch.stack([z, y, y, x, y, x, x, y, x])
    for favourite in range(9):
        rows = torch.zeros(9)
        rows[favourite] = 9.0
        view = with_states(rows, states)
        assert SCOPE(3, alpha=0).choose(view).kept[0].tolist() == [1, 3, 0]
        assert SCOPE(3, alpha=1).choose(view).kept[0].tolist()[0] == favourite


@pytest.mark.parametrize("seed", range(3))
def test_duplicates_are_taken_by_lowest_index(seed: int) -> None:
    """Wide tokens, where sums of equal rows may round differently."""
    different = torch.randn(9, 257, generator=torch.Generator().manual_seed(seed))
    once = SCOPE(9).choose(with_states(torch.zeros(9), different)).kept[0].tolist()
    view = with_states(torch.zeros(36), different.repeat(4, 1))
    assert SCOPE(12).choose(view).kept[0].tolist() == [*once, 9, 10, 11]


def test_full_cover_continues_by_saliency() -> None:
    rows = torch.tensor([0.0, 3, 1, 3, 2, 0, 5, 4, 1])
    view = with_states(rows, torch.ones(9, 4) * torch.arange(1, 10)[:, None])
    assert SCOPE(7).choose(view).kept[0].tolist() == [6, 7, 1, 3, 4, 2, 8]
    view = with_states(rows, torch.zeros(9, 4))
    assert SCOPE(3).choose(view).kept[0].tolist() == [6, 7, 1]


def test_class_tokens_come_last() -> None:
    view, tokens = seen(random_tower(2), [[Video(2)]])
    kept = SCOPE(33).choose(view).kept[0].tolist()
    classes = [place for place, token in enumerate(tokens[0]) if token.cell < 0]
    assert kept[-1] == classes[0]
    assert sorted(kept) == [place for place in range(34) if place != classes[1]]


@pytest.mark.parametrize("budget", [48, 1000, 1.0])
def test_a_budget_of_all_tokens_keeps_all(budget: float) -> None:
    view, tokens = seen(random_tower(crop_count(BATCH)), BATCH, newlines=False)
    for kept, mine in zip(SCOPE(budget).choose(view).kept, tokens, strict=True):
        assert sorted(kept.tolist()) == list(range(len(mine)))


def test_prunes_before_decoder_watches_feature_block() -> None:
    method = SCOPE(9)
    assert list(method.pruning_layers(4)) == [0]
    assert list(method.watched_vision_blocks(24, 22)) == [22]
    assert method.positions == "reindex"
    assert not method.drops_newlines
    assert not method.reads_prompt


@pytest.mark.parametrize("alpha", [-0.5, float("inf"), float("nan"), True, "1", None])
def test_invalid_alpha_raises(alpha: Any) -> None:
    with pytest.raises(InputError, match=f"alpha must be a number of at least 0, got {alpha!r}"):
        SCOPE(9, alpha)


def test_view_without_vision_outputs_raises() -> None:
    with pytest.raises(InputError, match="SCOPE reads the attention of the vision encoder"):
        SCOPE(3).choose(hand_made([torch.randn(9, 4)], block=0))


def test_nan_inputs_raise() -> None:
    states = torch.randn(9, 4)
    states[2, 1] = torch.nan
    with pytest.raises(InputError, match=r"visual holds nan at \[2, 1\]"):
        SCOPE(3).choose(with_states(torch.zeros(9), states))
    rows = torch.zeros(9)
    rows[4] = torch.inf
    with pytest.raises(InputError, match="saliency holds nan at"):
        SCOPE(3).choose(with_states(rows, torch.ones(9, 4)))


class Watched(SCOPE):
    """Tells what it takes for salient."""

    found: list[Tensor] = []  # noqa: RUF012

    def choose(self, view: View) -> Choice:
        self.found.append(compute_saliency(view)[view.mask])
        return super().choose(view)


def test_model_saliency_equals_eager_attention() -> None:
    entry = ZOO["llava"]
    model: Any = entry.build("eager")
    inputs = entry.inputs("ragged")
    tower = model.model.vision_tower
    with torch.no_grad():
        maps = tower(inputs["pixel_values"], output_attentions=True).attentions
    expected = maps[len(maps) - 2][:, :, 0, 1:].mean(1)  # hidden state -2 is its output
    Watched.found.clear()
    with torch.no_grad(), prune(model, Watched(5)) as run:
        model(**inputs)
    torch.testing.assert_close(torch.cat(Watched.found), expected.flatten())
    states = states_before(entry, inputs, 0)
    assert len(run.trace) == len(expected)
    for trace, saliency in zip(run.trace, expected, strict=True):
        table = slow_cosines(states[trace.sample, entry.visual(inputs)[trace.sample]])
        assert trace.kept.tolist() == sorted(slow_cover(table, saliency.tolist(), 5, 1.0))


def test_compare_tower_uses_vision_features() -> None:
    tower = random_tower(crop_count(BATCH), side=3, classes=1, seed=5)
    view, tokens = seen(tower, BATCH, newlines=False)
    choice = SCOPE(7, compare="tower").choose(view)
    differs = False
    for sample, (kept, mine) in enumerate(zip(choice.kept, tokens, strict=True)):
        features = torch.stack([tower.features[each.crop][1 + each.cell] for each in mine])
        expected = slow_cover(slow_cosines(features), slow_saliency(tower, mine), 7, 1.0)
        assert kept.tolist() == expected
        differs |= expected != SCOPE(7).choose(view).kept[sample].tolist()
    assert differs
    with pytest.raises(InputError, match="compare must be"):
        SCOPE(7, compare="pixels")  # type: ignore[arg-type]
