from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencover.errors import InputError
from tokencover.methods._shared.vision_tiles import (
    Crops,
    allocate,
    compute_cell_attention,
    group_images,
)

from .crops import Plain, Tiled, Video, random_tower, seen, slow_even, slow_rows


@pytest.mark.parametrize("classes", [0, 1, 2])
@pytest.mark.parametrize("block", [0, 2])
def test_rows_are_those_of_explicit_maps(classes: int, block: int) -> None:
    tower = random_tower(3, classes=classes)
    view, _ = seen(tower, [[Plain()], [Plain(), Plain()]])
    assert view.vision is not None
    rows = compute_cell_attention(view.vision, block)
    expected = torch.tensor([slow_rows(tower, block, crop) for crop in range(3)])
    torch.testing.assert_close(rows, expected)
    if classes == 0:
        torch.testing.assert_close(rows.sum(-1), torch.ones(3, 2))


def test_half_precision_rows_computed_in_float32() -> None:
    tower = random_tower(2)
    halved = replace(
        tower,
        queries={block: each.half() for block, each in tower.queries.items()},
        keys={block: each.half() for block, each in tower.keys.items()},
    )
    back = replace(
        tower,
        queries={block: each.float() for block, each in halved.queries.items()},
        keys={block: each.float() for block, each in halved.keys.items()},
    )
    rows = [
        compute_cell_attention(encoded, 1)
        for view, _ in (seen(each, [[Plain(), Plain()]]) for each in (halved, back))
        if (encoded := view.vision) is not None
    ]
    assert torch.equal(rows[0], rows[1])


def test_shares_by_largest_fractions() -> None:
    assert allocate(10, [1, 1, 1], [10, 10, 10]) == [4, 3, 3]
    assert allocate(10, [0.2, 0.3, 0.5], [10, 10, 10]) == [2, 3, 5]
    assert allocate(5, [1, 2, 4], [9, 9, 9]) == [1, 1, 3]  # 0.71, 1.43, 2.86


def test_allocate_overflow_goes_to_others_by_weight() -> None:
    assert allocate(12, [1, 1, 2], [100, 100, 2]) == [5, 5, 2]
    assert allocate(9, [8, 1, 0], [4, 4, 4]) == [4, 4, 1]
    assert allocate(7, [0, 0, 0], [4, 4, 1]) == [3, 3, 1]
    assert allocate(3, [5, 0], [2, 2]) == [2, 1]
    assert allocate(0, [1, 1], [0, 5]) == [0, 0]


def test_allocate_above_capacity_raises() -> None:
    with pytest.raises(InputError, match="8 tokens do not fit into 7 slots"):
        allocate(8, [1, 1], [3, 4])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.data())
def test_allocate_even_weights_in_turn(capacities: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(capacities)))
    assert allocate(total, [1] * len(capacities), capacities) == slow_even(total, capacities)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6), st.data())
def test_allocate_within_one_of_proportion(
    parts: list[tuple[int, int]], data: st.DataObject
) -> None:
    weights, capacities = [weight for weight, _ in parts], [fits for _, fits in parts]
    total = data.draw(st.integers(0, sum(capacities)))
    found = allocate(total, weights, capacities)
    assert sum(found) == total
    assert all(0 <= each <= fits for each, fits in zip(found, capacities, strict=True))
    if sum(weights) and all(
        Fraction(total * weight, sum(weights)) < fits for weight, fits in parts
    ):
        for each, weight in zip(found, weights, strict=True):
            assert abs(each - Fraction(total * weight, sum(weights))) < 1


def test_crops_map_cells_to_tokens() -> None:
    tower = random_tower(9, side=3)
    view, tokens = seen(tower, [[Plain(), Tiled((1, 2), cut=(1, 0))], [Video(2)], [Tiled((2, 1))]])
    _, crops = Crops.from_view(view, "Test")
    assert crops.members == [[0, 1, 2, 3], [4, 5], [6, 7, 8]]
    row = crops.look_up(view.row)
    seen_cells = set()
    for mine in tokens:
        for place, token in enumerate(mine):
            if token.cell >= 0:
                seen_cells.add((token.crop, token.cell))
                assert int(crops.slot[token.crop, token.cell]) == place
                assert int(row[token.crop, token.cell]) == token.row
    for crop, cell in (~crops.visible).nonzero().tolist():
        assert (crop, cell) not in seen_cells
        assert int(row[crop, cell]) == -1
    assert crops.medium == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert crops.frame == [0, 0, 1, 1, 0, 1, 0, 1, 1]
    assert crops.tile == [False] * 2 + [True] * 2 + [False] * 3 + [True] * 2
    assert crops.class_slot.tolist() == [-1] * 4 + [0, 10] + [-1] * 3
    assert crops.capacities == [9, 9, 3, 3, 9, 9, 9, 9, 9]


def test_allocate_evenly_respects_crop_capacities() -> None:
    tower = random_tower(5, side=3)
    view, _ = seen(tower, [[Plain(), Tiled((1, 2), cut=(1, 0))], [Plain()]])
    _, crops = Crops.from_view(view, "Test")
    assert crops.allocate_evenly([16, 100]) == [5, 5, 3, 3, 9]
    assert crops.allocate_evenly([6, 1]) == [2, 2, 1, 1, 1]


def test_image_crops_contain_tile_grid() -> None:
    tower = random_tower(14, side=2)
    view, _ = seen(tower, [[Tiled((3, 2), cut=(0, 1)), Plain()], [Video(2)], [Tiled((1, 3))]])
    _, crops = Crops.from_view(view, "Test")
    first, second, third = group_images(crops)
    assert [(each.base, each.tiles, each.grid) for each in first] == [
        (0, (1, 2, 3, 4, 5, 6), (3, 2)),
        (7, (), (0, 0)),
    ]
    assert [(each.base, each.tiles) for each in second] == [(8, ()), (9, ())]
    assert [(each.base, each.tiles, each.grid) for each in third] == [(10, (11, 12, 13), (1, 3))]


def test_view_without_vision_outputs_raises() -> None:
    from .views import hand_made

    with pytest.raises(InputError, match="Test reads the attention of the vision encoder"):
        Crops.from_view(hand_made([torch.randn(4, 3)]), "Test")


def test_tokens_not_from_vision_encoder_raise() -> None:
    view, _ = seen(random_tower(2), [[Plain()], [Plain()]])
    assert view.vision is not None
    view.vision.index[1, 3] = -1
    with pytest.raises(
        InputError, match="visual tokens of sample 1 do not correspond to its patches"
    ):
        Crops.from_view(view, "Test")
