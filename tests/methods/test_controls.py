"""Random, uniform grid and downsampling: exact counts on any images, against slow geometry."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.methods.views import hand_made
from tokencover import InputError
from tokencover.methods import BudgetedMethod, View
from tokencover.methods._shared.image_cells import cut_rectangles
from tokencover.methods.downsample import Downsample
from tokencover.methods.random_tokens import Random
from tokencover.methods.uniform_grid import UniformGrid

Grid = tuple[int, int]
CONTROLS = [Random, UniformGrid, Downsample]
GRIDS = st.tuples(st.integers(1, 16), st.integers(1, 16))


def tokens(seed: int, count: int, width: int = 3) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def places(grids: list[tuple[int, int, Grid]], nowhere: int = 0) -> dict[str, Tensor]:
    """Medium, frame, row and column of one sample; some tokens without a place come first."""
    rows = [(0, 0, -1, -1)] * nowhere
    for medium, frame, (tall, wide) in grids:
        rows += [(medium, frame, row, column) for row, column in product(range(tall), range(wide))]
    table = torch.tensor(rows)
    return dict(zip(("medium", "frame", "row", "column"), table.T, strict=True))


def images(
    *samples: list[tuple[int, int, Grid]], nowhere: int = 0, states: list[Tensor] | None = None
) -> View:
    """A view of samples, each a list of (medium, frame, grid)."""
    found = [places(sample, nowhere) for sample in samples]
    planes: dict[str, Any] = {
        name: torch.nn.utils.rnn.pad_sequence([each[name] for each in found], batch_first=True)
        for name in found[0]
    }
    states = states or [tokens(seed, len(each["row"])) for seed, each in enumerate(found)]
    return hand_made(states, **planes)


def kept(method: BudgetedMethod, view: View) -> list[list[int]]:
    return [sorted(each.tolist()) for each in method.choose(view).kept]


def image(tall: int, wide: int) -> list[tuple[int, int, Grid]]:
    return [(0, 0, (tall, wide))]


MIXED = [
    image(4, 5),
    [(0, 0, (3, 3)), (0, 1, (6, 4)), (1, 0, (2, 7))],
    [(0, frame, (2, 3)) for frame in range(5)],
]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 19, 20, 30, 46, 47, 1000, 0.01, 0.3, 0.5, 1.0])
def test_exactly_the_budget_is_kept(control: Any, budget: float) -> None:
    view = images(*MIXED)
    for found, total in zip(kept(control(budget), view), [20, 47, 30], strict=True):
        share = max(1, int(budget * total + 0.5)) if isinstance(budget, float) else budget
        assert len(found) == len(set(found)) == min(share, total)
        assert set(found) <= set(range(total))


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("budget", [1, 6, 13, 0.4])
def test_a_batch_equals_its_samples_alone(control: Any, budget: float) -> None:
    states = [tokens(3, 20), tokens(4, 47), tokens(5, 30)]
    together = control(budget).choose(images(*MIXED, states=states))
    for sample, (grids, own) in enumerate(zip(MIXED, states, strict=True)):
        alone = control(budget).choose(images(grids, states=[own]))
        index = alone.kept[0]
        assert torch.equal(together.kept[sample], index)
        if alone.hidden_states is not None:
            assert torch.equal(together.hidden_states[sample, index], alone.hidden_states[0, index])


@pytest.mark.parametrize("control", CONTROLS)
def test_layer_mean_budget_met(control: Any) -> None:
    view = images(image(6, 6))
    method = control(20, after=1, budget_mode="layer_mean")
    assert len(kept(method, view)[0]) == 15  # (36 + 3 * 15) / 4 = 20.25; with 14 it is 19.5


def test_random_depends_on_seed_and_length() -> None:
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    view = images(image(6, 6), image(5, 6), image(6, 6))
    first, second, third = kept(Random(9), view)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first == third
    assert first != second
    assert kept(Random(9, seed=1), view)[0] != first
    assert set(kept(Random(4), view)[0]) < set(first)


def test_random_draws_uniformly() -> None:
    view = images(image(4, 5))
    drawn = torch.zeros(20)
    for seed in range(400):
        drawn[Random(5, seed=seed).choose(view).kept[0]] += 1
    assert drawn.sum() == 2000
    assert drawn.min() > 65  # 100 each, standard deviation 8.7
    assert drawn.max() < 135


@pytest.mark.parametrize(("budget", "side"), [(64, 8), (144, 12), (36, 6), (16, 4), (9, 3), (4, 2)])
def test_grid_square_budget_gives_lattice(budget: int, side: int) -> None:
    step = 24 // side
    lattice = [(step - 1) // 2 + step * number for number in range(side)]
    found = kept(UniformGrid(budget), images(image(24, 24)))[0]
    assert found == [24 * row + column for row in lattice for column in lattice]


Rectangle = tuple[int, int, int, int]


def slow_cut(rows: int, columns: int, count: int, bands: int) -> list[Rectangle]:
    """Bands as high as their fraction of the cells, to the nearest row but at least one."""
    cuts, top, done = [], 0, 0
    for band in range(bands):
        cells = (band + 1) * count // bands - done
        done += cells
        bottom = math.floor(rows * done / count + 0.5)
        bottom = max(bottom, top + 1)
        for cell in range(cells):
            left, right = cell * columns // cells, (cell + 1) * columns // cells
            cuts.append((top, bottom, left, right))
        top = bottom
    return cuts


def squared_spread(cut: list[Rectangle]) -> int:
    """Token by token, in half steps: the squared distance to the middle of the cell."""
    total = 0
    for top, bottom, left, right in cut:
        for row, column in product(range(top, bottom), range(left, right)):
            total += (2 * row - top - bottom + 1) ** 2 + (2 * column - left - right + 1) ** 2
    return total


@pytest.mark.parametrize("rows", range(1, 8))
def test_cells_minimize_spread_over_bands(rows: int) -> None:
    for columns in range(1, 6):
        for count in range(1, rows * columns + 1):
            cuts = [
                slow_cut(rows, columns, count, bands) for bands in range(1, min(rows, count) + 1)
            ]
            filled = [
                cut
                for cut in cuts
                if all(top < bottom and left < right for top, bottom, left, right in cut)
            ]
            assert list(cut_rectangles(rows, columns, count)) == min(filled, key=squared_spread)


@settings(max_examples=40)
@given(GRIDS, st.data())
def test_cells_are_near_equal_rectangles(grid: Grid, data: st.DataObject) -> None:
    rows, columns = grid
    count = data.draw(st.integers(1, rows * columns))
    seen = torch.zeros(rows, columns, dtype=torch.int64)
    areas = []
    for top, bottom, left, right in cut_rectangles(rows, columns, count):
        seen[top:bottom, left:right] += 1
        areas.append((bottom - top) * (right - left))
    assert (seen == 1).all()
    assert len(areas) == count
    assert min(areas) > 0
    assert max(areas) <= 2 * rows * columns / count + 1


def test_few_tokens_are_spread_over_all_frames() -> None:
    view = images([(0, frame, (4, 4)) for frame in range(8)])
    assert [token // 16 for token in kept(UniformGrid(8), view)[0]] == list(range(8))
    frames = [token // 16 for token in kept(UniformGrid(4), view)[0]]
    assert frames == [0, 2, 4, 6]
    assert [token // 16 for token in kept(UniformGrid(1), view)[0]] == [3]


def test_each_image_gets_proportional_cells() -> None:
    view = images([(0, 0, (4, 4)), (0, 1, (8, 8)), (1, 0, (4, 4))])
    found = kept(UniformGrid(24), view)[0]
    spans = (0, 16), (16, 80), (80, 96)
    shares = [sum(begin <= token < end for token in found) for begin, end in spans]
    assert shares == [4, 16, 4]


@pytest.mark.parametrize("control", [UniformGrid, Downsample])
def test_tokens_without_a_place_come_last(control: Any) -> None:
    view = images(image(3, 4), nowhere=2)
    assert min(kept(control(5), view)[0]) >= 2
    assert kept(control(12), view)[0] == list(range(2, 14))
    assert kept(control(13), view)[0] == [0, *range(2, 14)]


def test_ragged_image_spread_in_raster_order() -> None:
    row, column = torch.tensor([[0, 0, 0, 1, 2, 2]]), torch.tensor([[0, 1, 2, 0, 0, 2]])
    view = hand_made([tokens(1, 6)], row=row, column=column)
    assert kept(UniformGrid(3), view) == [[0, 2, 4]]
    assert kept(UniformGrid(2), view) == [[1, 4]]


def test_tokens_on_one_another_are_all_counted() -> None:
    nowhere = torch.zeros(1, 6, dtype=torch.int64)
    view = hand_made([tokens(1, 6)], row=nowhere, column=nowhere)
    assert kept(UniformGrid(6), view) == [list(range(6))]
    assert kept(UniformGrid(3), view) == [[0, 2, 4]]


def slow_pooling(states: Tensor, wide: int, cell: int) -> dict[int, Tensor]:
    """Square cells of an image, by hand: slot of the middle and the mean."""
    found = {}
    tall = len(states) // wide
    for top, left in product(range(0, tall, cell), range(0, wide, cell)):
        inside = [wide * (top + y) + left + x for y in range(cell) for x in range(cell)]
        half = (cell - 1) // 2
        found[wide * (top + half) + left + half] = torch.stack([states[i] for i in inside]).mean(0)
    return found


@pytest.mark.parametrize(("tall", "wide", "cell"), [(6, 6, 2), (6, 9, 3), (4, 8, 4), (3, 3, 1)])
def test_a_cell_becomes_its_mean(tall: int, wide: int, cell: int) -> None:
    states = tokens(7, tall * wide)
    expected = slow_pooling(states, wide, cell)
    choice = Downsample(len(expected)).choose(images(image(tall, wide), states=[states]))
    assert sorted(choice.kept[0].tolist()) == sorted(expected)
    assert choice.hidden_states is not None
    for slot, mean in expected.items():
        torch.testing.assert_close(choice.hidden_states[0, slot], mean)


@pytest.mark.parametrize("budget", [2, 3, 5, 7, 11, 19])
def test_cells_of_different_sizes_become_means_too(budget: int) -> None:
    states = tokens(6, 20)
    choice = Downsample(budget).choose(images(image(4, 5), states=[states]))
    assert choice.hidden_states is not None
    cuts = cut_rectangles(4, 5, budget)
    assert len({(bottom - top) * (right - left) for top, bottom, left, right in cuts}) > 1
    for slot, (top, bottom, left, right) in zip(choice.kept[0].tolist(), cuts, strict=True):
        inside = [5 * row + column for row in range(top, bottom) for column in range(left, right)]
        torch.testing.assert_close(choice.hidden_states[0, slot], states[inside].mean(0))
        assert slot in inside


def test_pooling_half_precision_rounds_once() -> None:
    states = torch.tensor([[0.9140625], [0.396484375], [0.875]]).bfloat16()
    choice = Downsample(1).choose(images(image(1, 3), states=[states]))
    assert choice.hidden_states is not None
    assert choice.hidden_states.dtype == torch.bfloat16
    once, twice = (states.float().sum(0) / 3).bfloat16(), states.sum(0) / 3
    assert once != twice
    assert choice.hidden_states[0, 1] == once


def test_pooling_all_or_nothing() -> None:
    states = tokens(8, 12)
    choice = Downsample(12).choose(images(image(3, 4), states=[states]))
    assert choice.hidden_states is not None
    assert torch.equal(choice.hidden_states[0], states)
    one = Downsample(1).choose(images(image(3, 4), states=[states]))
    assert one.hidden_states is not None
    torch.testing.assert_close(one.hidden_states[0, one.kept[0][0]], states.mean(0))


def test_downsample_means_exclude_padding() -> None:
    view = images(image(2, 2), image(3, 5))
    view.hidden_states[0, 4:] = torch.inf
    choice = Downsample(3).choose(view)
    assert choice.hidden_states is not None
    assert choice.hidden_states[0, choice.kept[0]].isfinite().all()


def test_gradients_reach_every_pooled_token() -> None:
    states = tokens(9, 9).requires_grad_()
    choice = Downsample(1).choose(images(image(3, 3), states=[states]))
    assert choice.hidden_states is not None
    choice.hidden_states[0, choice.kept[0]].sum().backward()
    assert states.grad is not None
    torch.testing.assert_close(states.grad, torch.full((9, 3), 1 / 9))


def test_where_they_act() -> None:
    assert list(Random(4).pruning_layers(4)) == list(UniformGrid(4).pruning_layers(4)) == [1]
    assert list(Downsample(4).pruning_layers(4)) == [0]
    assert Downsample.merges


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"budget": 0}, "got 0"),
        ({"budget": 4, "after": -1}, "got -1"),
        ({"budget": 4, "after": 1.0}, "got 1.0"),
        ({"budget": 4, "after": True}, "got True"),
        ({"budget": 4, "budget_mode": "mean"}, "'mean'"),
        ({"budget": 4, "positions": "new"}, "'new'"),
    ],
)
def test_invalid_settings_raise(control: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        control(**settings)


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_invalid_seed_raises(seed: Any) -> None:
    with pytest.raises(InputError, match=f"got {seed}"):
        Random(4, seed=seed)


def test_after_beyond_last_layer_raises() -> None:
    with pytest.raises(InputError, match="after=4 is out of range"):
        Random(4, after=4).pruning_layers(4)
