"""What a budget means in each mode, against brute force and the numbers people quote."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokencover import InputError
from tokencover.budget import LayerCost, tokens_left
from tokencover.budget.amount import BudgetMode
from tokencover.methods import FastV

Schedule = Callable[[int], list[int]]
COST = LayerCost(linear=12, quadratic=1)


def once(total: int, after: int, depth: int) -> Schedule:
    """All tokens in the first blocks, what is left in the others."""
    return lambda left: [total] * after + [left] * (depth - after)


def left_for(
    budget: float,
    mode: BudgetMode,
    total: int,
    schedule: Schedule,
    others: int = 0,
    cost: LayerCost = COST,
) -> int:
    return tokens_left(budget, mode, total=total, others=others, schedule=schedule, cost=cost)


@pytest.mark.parametrize(
    ("total", "after", "mean", "left"),
    [
        (576, 2, 192, 166),  # 166.4
        (576, 2, 128, 98),  # 98.1
        (576, 2, 64, 30),  # 29.9
        (576, 3, 192, 152),  # 152.3
        (576, 3, 128, 82),  # 81.7
        (576, 3, 64, 11),  # 11.0
        (2880, 2, 640, 491),  # 490.7
        (2880, 2, 320, 149),  # 149.3
    ],
)
def test_keeping_a_mean_over_32_blocks(total: int, after: int, mean: int, left: int) -> None:
    assert left_for(mean, "layer_mean", total, once(total, after, 32)) == left
    exact = Fraction(32 * mean - after * total, 32 - after)
    assert left == round(exact)


def test_fraction_counts_all_tokens() -> None:
    assert left_for(1 / 3, "layer_mean", 576, once(576, 2, 32)) == 166
    assert left_for(1 / 9, "exact", 576, once(576, 2, 32)) == 64


def test_an_exact_budget_is_what_is_left() -> None:
    assert left_for(64, "exact", 576, once(576, 2, 32)) == 64
    assert left_for(1000, "exact", 576, once(576, 2, 32)) == 576
    assert left_for(160, "exact", 2880, once(2880, 2, 32)) == 160


def test_mean_below_first_layers_raises() -> None:
    # Two blocks of 2880 tokens and thirty of 1: 5790 / 32 = 180.9.
    with pytest.raises(InputError, match=r"160 tokens.*'layer_mean'.*180\.9.*at least 181"):
        left_for(160, "layer_mean", 2880, once(2880, 2, 32))
    assert left_for(181, "layer_mean", 2880, once(2880, 2, 32)) == 1


def test_flops_below_first_layers_raises() -> None:
    with pytest.raises(InputError, match=r"'flops'.*at least (\d+) are needed") as error:
        left_for(160, "flops", 2880, once(2880, 2, 32), others=60)
    needed = int(str(error.value).split("at least ")[1].split()[0])
    assert left_for(needed, "flops", 2880, once(2880, 2, 32), others=60) >= 1
    with pytest.raises(InputError, match="cannot be reached"):
        left_for(needed - 1, "flops", 2880, once(2880, 2, 32), others=60)


@pytest.mark.parametrize("mode", ["exact", "layer_mean", "flops"])
def test_before_the_decoder_all_modes_agree(mode: BudgetMode) -> None:
    for budget in (1, 5, 64, 575, 576, 0.111):
        expected = left_for(budget, "exact", 576, once(576, 0, 32))
        assert left_for(budget, mode, 576, once(576, 0, 32), others=37) == expected


@pytest.mark.parametrize("mode", ["layer_mean", "flops"])
def test_keeping_all_is_always_possible(mode: BudgetMode) -> None:
    assert left_for(1.0, mode, 50, once(50, 3, 4), others=9) == 50
    assert left_for(90, mode, 50, once(50, 3, 4), others=9) == 50


def test_equally_near_counts_smaller_chosen() -> None:
    # Steps of two tokens in the mean: 3 and 5 are equally far from 4.
    assert left_for(4, "layer_mean", 40, lambda left: [2 * left - 1] * 2) == 2


def nearest_by_trying_all(wanted: int, total: int, measure: Callable[[int], Fraction]) -> list[int]:
    """Every number left that comes as near as can be; the first is the smallest."""
    distance = {left: abs(measure(left) - wanted) for left in range(1, total + 1)}
    return [left for left, far in distance.items() if far == min(distance.values())]


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, Schedule]:
    """A pyramid: each stage keeps a part of what the last stage keeps more than the end."""
    total = draw(st.integers(1, 60))
    stages = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=4))
    end = draw(st.integers(1, 4))

    def schedule(left: int) -> list[int]:
        counts = []
        for blocks, quarters in stages:
            counts += [left + (total - left) * quarters // 4] * blocks
        return counts + [left] * end

    return total, schedule


def mean_of(counts: list[int]) -> Fraction:
    return Fraction(sum(counts), len(counts))


@given(schedules(), st.data())
def test_layer_mean_equals_exhaustive_search(
    pyramid: tuple[int, Schedule], data: st.DataObject
) -> None:
    total, schedule = pyramid
    wanted = data.draw(st.integers(1, total))
    if mean_of(schedule(1)) > wanted:
        with pytest.raises(InputError, match="cannot be reached"):
            left_for(wanted, "layer_mean", total, schedule)
        return
    found = left_for(wanted, "layer_mean", total, schedule)
    best = nearest_by_trying_all(wanted, total, lambda left: mean_of(schedule(left)))
    assert found == best[0]


def tokens_of_equal_cost(spent: Fraction, others: int, cost: LayerCost) -> Fraction:
    """Walk up token by token; between two whole numbers the cost is a straight line."""
    tokens = 0
    while cost.of(tokens + 1 + others) <= spent:
        tokens += 1
    here, there = cost.of(tokens + others), cost.of(tokens + 1 + others)
    return tokens + (spent - here) / (there - here)


@given(
    schedules(),
    st.integers(0, 30),
    st.integers(1, 50),
    st.integers(0, 9),
    st.data(),
)
def test_flops_equals_exhaustive_search(
    pyramid: tuple[int, Schedule], others: int, linear: int, quadratic: int, data: st.DataObject
) -> None:
    total, schedule = pyramid
    cost = LayerCost(linear, quadratic)
    wanted = data.draw(st.integers(1, total))

    def measure(left: int) -> Fraction:
        counts = schedule(left)
        spent = sum(cost.of(count + others) for count in counts)
        return tokens_of_equal_cost(Fraction(spent, len(counts)), others, cost)

    if measure(1) > wanted:
        with pytest.raises(InputError, match="cannot be reached"):
            left_for(wanted, "flops", total, schedule, others, cost)
        return
    found = left_for(wanted, "flops", total, schedule, others, cost)
    assert found == nearest_by_trying_all(wanted, total, measure)[0]


def test_costs_grow_faster_than_means() -> None:
    # Attention makes the full first layers more expensive than their part of the mean.
    schedule = once(576, 2, 32)
    cheap = LayerCost(linear=1, quadratic=10)
    assert left_for(192, "flops", 576, schedule, 40, cheap) < left_for(
        192, "layer_mean", 576, schedule
    )
    free = LayerCost(linear=7, quadratic=0)
    assert left_for(192, "flops", 576, schedule, 40, free) == 166


def test_a_block_costs_tokens_and_pairs() -> None:
    assert LayerCost(linear=3, quadratic=2).of(10) == 3 * 10 + 2 * 10 * 10
    assert LayerCost(linear=3, quadratic=2).of(0) == 0


@pytest.mark.parametrize("mode", ["mean", "", None, "Exact"])
def test_unknown_mode_raises(mode: str) -> None:
    with pytest.raises(InputError, match="'exact', 'layer_mean', 'flops'"):
        FastV(4, budget_mode=mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, "64"])
def test_invalid_budget_every_mode_raises(budget: int) -> None:
    for mode in ("exact", "layer_mean", "flops"):
        with pytest.raises(InputError, match="budget"):
            left_for(budget, mode, 576, once(576, 2, 32))
