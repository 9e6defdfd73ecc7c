"""ToMe, and budgets inside the vision encoder, against slow loops and hand-made cases."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.vision_views import crop_of, lists, run_through, vision_view
from tokencover.errors import InputError
from tokencover.methods._shared.vision_merging import (
    count_per_crop,
    limit_to_half,
    match_pairs,
    remove_evenly,
)
from tokencover.methods.base import VisionView
from tokencover.methods.registry import from_json, get_method, to_json
from tokencover.methods.tome import ToMe

Row = list[float]


def cosine(one: Row, other: Row) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    lengths = sum(a * a for a in one) * sum(b * b for b in other)
    return float(product / lengths**0.5)


def slow_tome(view: VisionView, crop: int, remove: int) -> tuple[list[int], list[Row]]:
    """One block of one crop, token by token: groups, and the new states."""
    keys, states, sizes = (
        lists(each[crop]) for each in (view.keys().mean(1), view.hidden_states, view.sizes)
    )
    count = len(states)
    best: dict[int, tuple[float, int]] = {}
    for source in range(0, count, 2):
        if source >= view.classes:
            found = [
                (-cosine(keys[source], keys[target]), target)
                for target in range(1, count, 2)
                if target >= view.classes
            ]
            best[source] = min(found)
    merged = sorted(best, key=lambda source: (best[source][0], source))[:remove]
    stay = [token for token in range(count) if token not in merged]
    order = [token for token in stay if token < view.classes]
    order += [token for token in stay if token >= view.classes and token % 2 == 0]
    order += [token for token in stay if token >= view.classes and token % 2 == 1]
    owner = [best[token][1] if token in merged else token for token in range(count)]
    new_states = []
    for token in order:
        members = [each for each in range(count) if owner[each] == token]
        weight = sum(sizes[each] for each in members)
        new_states.append(
            [
                sum(sizes[m] * states[m][axis] for m in members) / weight
                for axis in range(len(states[0]))
            ]
        )
    return [order.index(token) for token in owner], new_states


def removed_per_block(method: ToMe, total: int, left: int, blocks: int) -> list[int]:
    counts = [total, *method.plan_counts(total, left, blocks)]
    return [before - after for before, after in pairwise(counts)]


@pytest.mark.parametrize("classes", [0, 1, 2])
@pytest.mark.parametrize("grid", [(5, 5), (4, 6)])
def test_every_block_equals_the_slow_loop(grid: tuple[int, int], classes: int) -> None:
    view = vision_view(grid, crops=(3, 3), classes=classes)
    views = run_through(ToMe(budget=3 * 7), view)
    for before, after in pairwise(views):
        remove = before.hidden_states.shape[1] - after.hidden_states.shape[1]
        choice = ToMe(budget=3 * 7).merge_in_vision_encoder(before)
        for crop in range(6):
            groups, states = slow_tome(before, crop, remove)
            assert choice.groups[crop].tolist() == groups
            expected = torch.tensor(states)
            torch.testing.assert_close(choice.hidden_states[crop], expected, atol=1e-5, rtol=1e-5)
    assert views[-1].hidden_states.shape == (6, classes + 7, 6)


def test_merged_token_is_mean_of_members() -> None:
    view = vision_view((4, 4), crops=(2,))
    last = run_through(ToMe(budget=6), view)[-1]
    for crop in range(2):
        for token in range(last.hidden_states.shape[1]):
            mean = view.hidden_states[crop, last.members[crop] == token].mean(0)
            torch.testing.assert_close(last.hidden_states[crop, token], mean, atol=1e-5, rtol=1e-5)
    assert int(last.sizes.sum()) == 2 * 17
    assert last.members[:, 0].tolist() == [0, 0]
    assert last.sizes[:, 0].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("keep", "more", "fewer"),
    [(192, (16, 17), (7, 16)), (128, (11, 20), (12, 19)), (64, (6, 23), (17, 22))],
)
def test_removals_on_llava_1_5(keep: int, more: tuple[int, int], fewer: tuple[int, int]) -> None:
    method = ToMe(budget=keep)
    blocks = list(method.vision_blocks(24, feature_block=22))
    assert blocks == list(range(23))
    expected = [more[1]] * more[0] + [fewer[1]] * fewer[0]
    assert removed_per_block(method, 576, keep, len(blocks)) == expected


@pytest.mark.parametrize("inflect", [-1.0, -0.3, 0.0, 0.55, 1.0])
@pytest.mark.parametrize("left", [64, 101, 575, 576])
def test_inflected_removals_follow_line_exactly(inflect: float, left: int) -> None:
    removed = removed_per_block(ToMe(budget=left, inflect=inflect), 576, left, 23)
    assert sum(removed) == 576 - left
    if left > 64:  # nothing is so steep that halving interferes
        mean = (576 - left) / 23
        for block, each in enumerate(removed):
            assert abs(each - mean * (1 - inflect + 2 * inflect * block / 22)) < 1


def test_late_removals_move_forward_at_half() -> None:
    assert list(remove_evenly(64, 1, 8)) == [56, 48, 40, 32, 24, 16, 8, 1]
    assert limit_to_half(remove_evenly(64, 1, 8), 64) == [56, 48, 32, 16, 8, 4, 2, 1]
    assert limit_to_half(remove_evenly(64, 1, 6), 64) == [32, 16, 8, 4, 2, 1]


def test_unreachable_budget_names_smallest_possible() -> None:
    method = ToMe(budget=12)
    assert method.plan_counts(100, 13, 3) == [52, 26, 13]
    with pytest.raises(InputError, match=r"from 100 to 12 tokens: the smallest budget is 13"):
        method.plan_counts(100, 12, 3)
    with pytest.raises(InputError, match="smallest budget is 4"):
        ToMe(budget=3).merge_in_vision_encoder(vision_view((5, 5)))


def test_exact_counts_images_of_several_crops() -> None:
    for budget, crops, each in [(64, (1, 1), 64), (64, (5, 5), 12), (0.25, (1, 3), 25)]:
        assert count_per_crop(budget, crops, 100) == each
    assert count_per_crop(1000, (5,), 100) == 100
    for budget, left in [(10, 5), (11, 5), (0.5, 8)]:
        last = run_through(ToMe(budget=budget), vision_view((4, 4), crops=(2, 2)))[-1]
        assert last.hidden_states.shape[1] == 1 + left


def test_budgets_that_crops_cannot_share() -> None:
    with pytest.raises(InputError, match=r"3, 5 crops: use a fraction"):
        count_per_crop(64, (5, 3, 5), 100)
    with pytest.raises(InputError, match=r"budget=4 is too small for the 5 crops .* at least 5"):
        count_per_crop(4, (5,), 100)


def test_keeping_everything_changes_nothing() -> None:
    view = vision_view((3, 3), crops=(2,))
    for each in run_through(ToMe(budget=1.0), view):
        assert torch.equal(each.hidden_states, view.hidden_states)
        assert torch.equal(each.members, view.members)


def test_ties_go_to_the_lowest_place() -> None:
    def groups(keys: list[list[float]], remove: int, protected: int = 0) -> Any:
        return match_pairs(torch.tensor([keys]), remove, protected).groups[0].tolist()

    alike = [[1.0, 0.0]] * 6
    # New order of the first: places 2, 4, then 1, 3, 5; place 0 goes to place 1.
    assert groups(alike, 1) == [2, 2, 0, 3, 1, 4]
    assert groups(alike, 3) == [0, 0, 0, 1, 0, 2]
    assert groups(alike, 2, protected=1) == [0, 1, 1, 2, 1, 3]


def test_several_merge_into_one_and_sizes_weigh() -> None:
    keys = torch.tensor(
        [[[1.0, 0.0], [0.0, 1.0], [0.1, 1.0], [1.0, -1.0], [-0.1, 1.0], [1.0, 1.0]]]
    )
    matching = match_pairs(keys, 2)
    assert matching.groups.tolist() == [[0, 1, 1, 2, 1, 3]]
    values = torch.tensor([[[0.0], [6.0], [3.0], [5.0], [1.0], [7.0]]])
    sizes = torch.tensor([[1, 1, 2, 1, 3, 1]])
    assert matching.average(values, sizes).squeeze().tolist() == [0.0, 2.5, 5.0, 7.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_means_are_summed_in_float32(dtype: torch.dtype) -> None:
    view = vision_view((4, 4), crops=(1,))
    half = dataclasses.replace(view, hidden_states=view.hidden_states.to(dtype))
    full = dataclasses.replace(view, hidden_states=half.hidden_states.float())
    found, exact = (ToMe(budget=0.6).merge_in_vision_encoder(each) for each in (half, full))
    assert found.hidden_states.dtype == dtype
    assert torch.equal(found.hidden_states, exact.hidden_states.to(dtype))


def test_a_batch_of_crops_equals_each_alone() -> None:
    view = vision_view((4, 5), crops=(4,))
    together = ToMe(budget=0.5).merge_in_vision_encoder(view)
    for crop in range(4):
        alone = ToMe(budget=0.5).merge_in_vision_encoder(crop_of(view, crop))
        assert torch.equal(alone.groups[0], together.groups[crop])
        torch.testing.assert_close(
            alone.hidden_states[0], together.hidden_states[crop], atol=1e-6, rtol=0
        )


def test_gradients_reach_every_state() -> None:
    view = vision_view((4, 4))
    states = view.hidden_states.clone().requires_grad_()
    ToMe(budget=0.5).merge_in_vision_encoder(
        dataclasses.replace(view, hidden_states=states)
    ).hidden_states.sum().backward()
    assert states.grad is not None
    assert bool((states.grad.abs().sum(-1) > 0).all())


def test_nan_raises() -> None:
    def keys() -> Tensor:
        return torch.full((1, 2, 17, 5), torch.nan)

    with pytest.raises(
        InputError, match=r"block 0 of the vision encoder, the scores of crop 0 are NaN"
    ):
        ToMe(budget=8).merge_in_vision_encoder(vision_view((4, 4), keys=keys))


def test_settings() -> None:
    method = ToMe(budget=64, inflect=-1)
    assert method.positions == "reindex"
    assert method.inside_vision_blocks
    assert method.proportional_attention
    assert not method.pruning_layers(32)
    assert method.schedule(64, 576, 32) == [64] * 32
    assert from_json(to_json(method)) == method
    assert get_method("tome", budget=0.5) == ToMe(0.5)
    for wrong in (1.5, -2, True, "much"):
        with pytest.raises(InputError, match="inflect must"):
            ToMe(budget=64, inflect=wrong)  # type: ignore[arg-type]
