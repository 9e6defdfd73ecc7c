"""FiCoCo-V against a slow loop straight from the formulas, and hand-made cases."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.vision_views import crop_of, lists, run_through, vision_view
from tokencover.errors import InputError
from tokencover.methods.base import VisionView
from tokencover.methods.ficoco import (
    FiCoCoV,
    compute_merge_weights,
    compute_windows,
    penalize_locally,
)
from tokencover.methods.registry import from_json, get_method, to_json

Row = list[float]


def unit(values: Row) -> Row:
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def slow_importance(view: VisionView, crop: int, patches: range) -> Row:
    """Attention of the class token, or of the mean key where there is none."""
    if view.classes:
        rows = lists(view.attention()[crop, : view.classes])
        return [sum(row[patch] for row in rows) / len(rows) for patch in patches]
    heads = []
    for keys in lists(view.keys()[crop]):
        mean = [sum(key[axis] for key in keys) / len(keys) for axis in range(len(keys[0]))]
        products = [sum(a * b for a, b in zip(mean, key, strict=True)) for key in keys]
        powers = [math.exp(product / math.sqrt(len(mean))) for product in products]
        heads.append([power / sum(powers) for power in powers])
    return [sum(head[patch] for head in heads) / len(heads) for patch in patches]


def slow_scores(view: VisionView, crop: int) -> dict[int, float]:
    """Redundancy of each patch, windows applied."""
    attention = lists(view.attention()[crop])
    patches = range(view.classes, len(attention))
    received = [sum(attention[j][i] for j in patches) / len(patches) for i in patches]
    redundancy = [
        0.65 * alike - 0.35 * important
        for alike, important in zip(
            unit(received), unit(slow_importance(view, crop, patches)), strict=True
        )
    ]
    scores = dict(zip(patches, redundancy, strict=True))
    members = view.members[crop].tolist()
    windows: dict[tuple[int, int], list[int]] = {}
    for patch in patches:
        row, column = divmod(members.index(patch) - view.classes, view.grid[1])
        windows.setdefault((row // 2, column // 2), []).append(patch)
    pushed = [max(group, key=lambda patch: (scores[patch], -patch)) for group in windows.values()]
    for patch in pushed:
        scores[patch] *= 2 if scores[patch] > 0 else 0.5
    return scores


def slow_ficoco(
    view: VisionView, crop: int, remove: int, epsilon: float = 0.998
) -> tuple[list[int], list[Row]]:
    """One block of one crop, token by token: groups, and the new states."""
    scores = slow_scores(view, crop)
    dropped = sorted(scores, key=lambda patch: (-scores[patch], patch))[:remove]
    kept = [patch for patch in scores if patch not in dropped]
    attention, states = lists(view.attention()[crop]), lists(view.hidden_states[crop])
    sums = {j: list(states[j]) for j in kept}
    weights = dict.fromkeys(kept, 1.0)
    owner = {token: token for token in range(len(states))}
    for i in dropped:
        rising = sorted(attention[i][j] for j in kept)
        place = epsilon * (len(kept) - 1)
        low, high = rising[math.floor(place)], rising[math.ceil(place)]
        threshold = low + (place - math.floor(place)) * (high - low)
        targets = [j for j in kept if attention[i][j] >= threshold]
        total = sum(attention[i][j] for j in targets)
        for j in targets:
            alpha = attention[i][j] / total
            weights[j] += alpha
            sums[j] = [a + alpha * b for a, b in zip(sums[j], states[i], strict=True)]
        before = [j for j in kept if j < i]
        owner[i] = max(before, key=lambda j: (attention[i][j], -j)) if before else kept[0]
    order = [*range(view.classes), *kept]
    new = [states[token] for token in range(view.classes)]
    new += [[value / weights[j] for value in sums[j]] for j in kept]
    return [order.index(owner[token]) for token in range(len(states))], new


@pytest.mark.parametrize("epsilon", [0.998, 0.8, 0.0])
@pytest.mark.parametrize("classes", [0, 1])
@pytest.mark.parametrize("grid", [(5, 5), (4, 6)])
def test_every_block_equals_the_slow_loop(
    grid: tuple[int, int], classes: int, epsilon: float
) -> None:
    method = FiCoCoV(budget=3 * 7, quantile=epsilon)
    view = vision_view(grid, crops=(3, 3), classes=classes, depth=6, feature_block=5)
    views = run_through(method, view)
    assert len(views) == 4
    for before, after in pairwise(views):
        remove = before.hidden_states.shape[1] - after.hidden_states.shape[1]
        choice = method.merge_in_vision_encoder(before)
        for crop in range(6):
            groups, states = slow_ficoco(before, crop, remove, epsilon)
            assert choice.groups[crop].tolist() == groups
            expected = torch.tensor(states)
            torch.testing.assert_close(choice.hidden_states[crop], expected, atol=1e-5, rtol=1e-5)
    assert views[-1].hidden_states.shape == (6, classes + 7, 6)
    assert bool((views[-1].sizes[:, :classes] == 1).all())


@pytest.mark.parametrize(
    ("keep", "more", "fewer"),
    [(192, (10, 35), (1, 34)), (128, (8, 41), (3, 40)), (64, (6, 47), (5, 46))],
)
def test_removals_on_llava_1_5(keep: int, more: tuple[int, int], fewer: tuple[int, int]) -> None:
    method = FiCoCoV(budget=keep)
    blocks = list(method.vision_blocks(24, feature_block=22))
    assert blocks == list(range(12, 23))
    counts = [576, *method.plan_counts(576, keep, len(blocks))]
    removed = [before - after for before, after in pairwise(counts)]
    assert removed == [more[1]] * more[0] + [fewer[1]] * fewer[0]


def test_vision_blocks_early_feature_block() -> None:
    method = FiCoCoV(budget=8)
    assert list(method.vision_blocks(3, 1)) == [1]
    assert list(method.vision_blocks(12, 3)) == [3]
    assert list(method.vision_blocks(5, 4)) == [2, 3, 4]


def test_one_block_may_drop_all_but_one() -> None:
    view = vision_view((4, 4), depth=1, feature_block=0)
    choice = FiCoCoV(budget=1).merge_in_vision_encoder(view)
    assert choice.hidden_states.shape[1] == 2
    assert choice.groups.tolist() == [[0] + [1] * 16]


def test_kept_tokens_lie_where_they_were() -> None:
    method = FiCoCoV(budget=10)
    view = vision_view((6, 6), depth=6, feature_block=5)
    own = torch.arange(36)
    views = run_through(method, view)
    for before, after in pairwise(views):
        remove = before.hidden_states.shape[1] - after.hidden_states.shape[1]
        scores = slow_scores(before, 0)
        dropped = sorted(scores, key=lambda patch: (-scores[patch], patch))[:remove]
        own = own[[patch - 1 for patch in scores if patch not in dropped]]
    members = views[-1].members[0, 1:].tolist()
    first = [members.index(token) for token in range(1, 11)]
    assert first[1:] == own[1:].tolist()
    assert first[0] == 0


def test_penalty_finds_windows_of_odd_grids() -> None:
    view = vision_view((3, 5), classes=1)
    assert compute_windows(view).tolist() == [[0, 0, 1, 1, 2, 0, 0, 1, 1, 2, 3, 3, 4, 4, 5]]
    # Tokens 1 and 3 of the first row are one token, as are 0 and the last of all.
    members = torch.tensor([[0, 1, 2, 3, 2, 4, *range(5, 14), 1]])
    merged = dataclasses.replace(view, members=members, hidden_states=view.hidden_states[:, :14])
    assert compute_windows(merged).tolist() == [[0, 0, 1, 2, 0, 0, 1, 1, 2, 3, 3, 4, 4]]


def test_penalty_applies_to_first_worst_token() -> None:
    scores = torch.tensor([[1.0, 3.0, 3.0, -1.0, -2.0, 0.0, -4.0]])
    windows = torch.tensor([[0, 0, 0, 1, 1, 2, 5]])
    expected = [[1.0, 6.0, 3.0, -0.5, -2.0, 0.0, -2.0]]
    assert penalize_locally(scores, windows).tolist() == expected


def test_ties_drop_the_first_and_share_alike() -> None:
    def attention() -> Tensor:
        return torch.full((1, 17, 17), 1 / 17)

    view = vision_view((4, 4), depth=1, feature_block=0, attention=attention)
    choice = FiCoCoV(budget=13).merge_in_vision_encoder(view)
    # The first token of each window goes first: places 0, 2 and 8 of the image.
    assert choice.groups.tolist() == [[0, 1, 1, 1, 2, 3, 4, 5, 6, 1, 7, 8, 9, 10, 11, 12, 13]]
    dropped = view.hidden_states[0, [1, 3, 9]].sum(0)
    kept = view.hidden_states[0, [2, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16]]
    expected = (kept + dropped / 13) / (1 + 3 / 13)
    torch.testing.assert_close(choice.hidden_states[0, 1:], expected)


def test_shares() -> None:
    rows = torch.tensor([[[0.1, 0.5, 0.3, 0.1], [0.2, 0.4, 0.4, 0.0], [0.0, 0.0, 0.0, 0.0]]])
    top = compute_merge_weights(rows, 0.998)
    torch.testing.assert_close(
        top, torch.tensor([[[0.0, 1.0, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.25] * 4]])
    )
    half = compute_merge_weights(rows[:, :1], 0.5)
    torch.testing.assert_close(half, torch.tensor([[[0.0, 0.625, 0.375, 0.0]]]))


def test_targets_at_llava_1_5_lengths() -> None:
    rows = torch.rand(1, 8, 541, generator=torch.Generator().manual_seed(3))
    assert (compute_merge_weights(rows, 0.998) > 0).sum(-1).tolist() == [[2] * 8]
    assert (compute_merge_weights(rows[..., :64], 0.998) > 0).sum(-1).tolist() == [[1] * 8]


def test_a_batch_of_crops_equals_each_alone() -> None:
    method = FiCoCoV(budget=0.4)
    view = vision_view((4, 5), crops=(4,), depth=2, feature_block=1, block=1)
    together = method.merge_in_vision_encoder(view)
    for crop in range(4):
        alone = method.merge_in_vision_encoder(crop_of(view, crop))
        assert torch.equal(alone.groups[0], together.groups[crop])
        torch.testing.assert_close(
            alone.hidden_states[0], together.hidden_states[crop], atol=1e-6, rtol=0
        )


def test_keeping_everything_changes_nothing() -> None:
    view = vision_view((3, 3), crops=(2,))
    for each in run_through(FiCoCoV(budget=18), view):
        assert torch.equal(each.hidden_states, view.hidden_states)
        assert torch.equal(each.members, view.members)


def test_half_precision_states_are_summed_in_float32() -> None:
    view = vision_view((4, 4), depth=1, feature_block=0)
    half = dataclasses.replace(view, hidden_states=view.hidden_states.half())
    full = dataclasses.replace(view, hidden_states=half.hidden_states.float())
    found, exact = (FiCoCoV(budget=6).merge_in_vision_encoder(each) for each in (half, full))
    assert torch.equal(found.hidden_states, exact.hidden_states.half())


def test_nan_raises() -> None:
    def attention() -> Tensor:
        rows = torch.full((2, 17, 17), 1 / 17)
        rows[1, 4, 4] = torch.nan
        return rows

    view = vision_view((4, 4), crops=(1, 1), depth=1, feature_block=0, attention=attention)
    with pytest.raises(
        InputError, match=r"block 0 of the vision encoder, the scores of crop 1 are NaN"
    ):
        FiCoCoV(budget=8).merge_in_vision_encoder(view)


@pytest.mark.parametrize(
    "wrong",
    [{"quantile": 1.1}, {"quantile": True}, {"patch_weight": -1}, {"class_weight": math.inf}],
)
def test_bad_settings(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"{name} must be a number"):
        FiCoCoV(budget=64, **wrong)


def test_settings() -> None:
    method = FiCoCoV(budget=64, quantile=0.99)
    assert method.positions == "reindex"
    assert method.inside_vision_blocks
    assert not method.proportional_attention
    assert not method.pruning_layers(32)
    assert from_json(to_json(method)) == method
    assert get_method("ficoco_v", budget=64, quantile=0.99) == method
