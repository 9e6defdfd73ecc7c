"""K as each method's own paper counts it."""

from __future__ import annotations

import pytest
import torch

import tokencover as tc
from tests.methods.views import hand_made
from tokencover.budget import BudgetMode, tokens_left
from tokencover.errors import InputError
from tokencover.evaluation.plan import Combination
from tokencover.methods import BudgetedMethod

MEANS = [tc.FastV, tc.MustDrop]
COUNTS = [tc.MoB, tc.DivPrune, tc.CDPruner, tc.DART, tc.TokenCarve]


def count_left(method: BudgetedMethod) -> int:
    view = hand_made([torch.zeros(576, 2)], depth=32, block=2)
    return method.num_kept(view)[0]


@pytest.mark.parametrize("kind", [*MEANS, *COUNTS])
def test_published_is_what_the_paper_counts(kind: type[BudgetedMethod]) -> None:
    mode: BudgetMode = "layer_mean" if kind in MEANS else "exact"
    published = count_left(kind(320, budget_mode="published"))
    same = count_left(kind(320, budget_mode=mode))
    assert published == same
    if kind in MEANS:
        assert published < count_left(kind(320, budget_mode="exact"))


@pytest.mark.parametrize(
    ("kind", "means"),
    [
        (tc.SparseVLM, [269, 219, 166]),
        (tc.PyramidDrop, [361, 316, 262]),
        (tc.FastV, [216, 156, 96]),
    ],
)
def test_exact_budgets_are_other_means(kind: type[BudgetedMethod], means: list[int]) -> None:
    """Which is why a reader who compares rows by name is misled."""
    for budget, mean in zip((192, 128, 64), means, strict=True):
        schedule = kind(budget).schedule(budget, 576, 32)
        assert sum(schedule) / 32 == pytest.approx(mean, abs=0.51)


@pytest.mark.parametrize(("name", "left"), [(192, 113), (128, 39), (96, 27), (64, 18)])
def test_sparsevlm_by_the_names_of_its_lists(name: int, left: int) -> None:
    """They are means over what blocks put out, not over what they work on."""
    assert count_left(tc.SparseVLM(name, budget_mode="published")) == left


def test_tables_say_which_is_meant() -> None:
    labels = [Combination(kind(64, budget_mode="published")).budget for kind in (tc.FastV, tc.MoB)]
    assert labels == ["64 published (layer_mean)", "64 published (exact)"]


def test_unresolved_mode_raises() -> None:
    view = hand_made([torch.zeros(9, 2)])
    with pytest.raises(InputError, match="resolve"):
        tokens_left(4, "published", total=9, others=1, schedule=lambda left: [left], cost=view.cost)
