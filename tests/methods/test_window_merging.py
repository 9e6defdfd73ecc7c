"""Windows of tokens that are alike are merged."""

from __future__ import annotations

import pytest
import torch

from tests.methods.slow_mustdrop import alike_in_places, slow_merge, slow_similarity, slow_windows
from tokencover.methods.mustdrop import compare_in_windows, cut_windows, merge_windows


@pytest.mark.parametrize("grid", [(6, 6), (3, 9), (7, 5), (2, 8), (9, 6)])
def test_windows_and_their_similarity(grid: tuple[int, int]) -> None:
    tokens = torch.stack([alike_in_places(grid, seed, (0.1, 0.5, 1.0)) for seed in (1, 2)])
    members = cut_windows(grid, 3)
    assert members.tolist() == slow_windows(grid)
    found = compare_in_windows(tokens, grid, 3)
    expected = [[slow_similarity(crop, window) for window in members.tolist()] for crop in tokens]
    torch.testing.assert_close(found, torch.tensor(expected).view(found.shape))


@pytest.mark.parametrize("threshold", [-1.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("grid", [(6, 6), (7, 8), (2, 2), (9, 3)])
def test_merging_equals_the_slow_one(grid: tuple[int, int], threshold: float) -> None:
    noises = [(0.1, 2.0, 0.05, 0.2), (0.2, 0.1, 3.0, 0.3), (0.0, 0.0, 0.0, 0.0)]
    crops = torch.stack([alike_in_places(grid, 10 * i, n) for i, n in enumerate(noises)])
    groups, merged = merge_windows(crops, grid, 3, threshold)
    expected = slow_merge(crops, grid, threshold)
    assert merged.shape == (3, len(expected[0]), 8)
    for crop, owned in enumerate(expected):
        for number, tokens in enumerate(owned):
            assert (groups[crop] == number).nonzero().squeeze(-1).tolist() == sorted(tokens)
            torch.testing.assert_close(merged[crop, number], crops[crop, tokens].mean(0))


@pytest.mark.parametrize("scale", [0.1, 1.0, 7.3])
def test_windows_of_copies_merge_in_order(scale: float) -> None:
    blank = alike_in_places((6, 9), 5, (0.0,) * 6) * scale
    assert compare_in_windows(blank[None], (6, 9), 3).tolist() == [[1.0] * 6]
    two = alike_in_places((6, 9), 6, (0.0, 5.0, 5.0, 0.0, 5.0, 5.0))
    groups, _ = merge_windows(torch.stack([blank, two]), (6, 9), 3, 1.0)
    sizes = [len(groups[0, window].unique()) for window in slow_windows((6, 9))]
    assert sizes == [1, 1, 9, 9, 9, 9]


def test_crops_merge_as_many_as_fewest() -> None:
    few = alike_in_places((6, 6), 1, (0.05, 5.0, 5.0, 5.0))
    many = alike_in_places((6, 6), 2, (0.3, 0.1, 0.2, 0.05))
    assert merge_windows(many[None], (6, 6), 3, 0.8)[1].shape[1] == 4
    groups, merged = merge_windows(torch.stack([few, many]), (6, 6), 3, 0.8)
    assert merged.shape[1] == 36 - 8
    assert int((groups[1, slow_windows((6, 6))[3]] == groups[1, 21]).sum()) == 9
