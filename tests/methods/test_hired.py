import math

import pytest
import torch

from tokencover.errors import InputError
from tokencover.methods.hired import HiRED

from .crops import (
    Image,
    Plain,
    Tiled,
    Token,
    Tower,
    Video,
    crops_of,
    random_tower,
    seen,
    slow_scores,
    tower_with_rows,
)

BATCH: list[list[Image]] = [
    [Tiled((2, 2), cut=(1, 0))],
    [Plain()],
    [Tiled((1, 3), cut=(0, 1)), Plain()],
    [Video(2)],
]
CROPS = 5 + 1 + 5 + 2


def slow_divided(total: int, weights: list[int]) -> list[int]:
    """Round down, then one more for the largest fractions."""
    exact = [total * weight / sum(weights) for weight in weights]
    given = [math.floor(each + 1e-9) for each in exact]
    order = sorted(range(len(exact)), key=lambda i: (-round(exact[i] - given[i], 9), i))
    for place in order[: total - sum(given)]:
        given[place] += 1
    return given


def slow_counts(
    tower: Tower, total: int, alpha: float, grid: tuple[int, int], bands: bool
) -> list[int]:
    """Budgets of base view and tiles of crop 0 and those after it, if all of them fit."""
    cells = tower.side**2
    full = min(int(total * alpha), cells)
    scores = slow_scores(tower, 0, 0)
    top = sorted(range(cells), key=lambda cell: (-scores[cell], cell))[: int(cells * (1 - alpha))]
    counts = [0] * (grid[0] * grid[1])
    for cell in top:
        row, column = divmod(cell, tower.side)
        if bands:
            counts[cell // (cells // len(counts))] += 1
        else:
            region = row // (tower.side // grid[0]), column // (tower.side // grid[1])
            counts[region[0] * grid[1] + region[1]] += 1
    return [full, *slow_divided(total - full, counts)]


def slow_best(tower: Tower, tokens: list[Token], counts: list[int]) -> list[int]:
    kept = []
    for (crop, places), count in zip(crops_of(tokens).items(), counts, strict=True):
        scores = slow_scores(tower, tower.feature_block, crop)
        kept += sorted(places, key=lambda place: (-scores[tokens[place].cell], place))[:count]
    return sorted(kept)


@pytest.mark.parametrize("classes", [0, 1])
@pytest.mark.parametrize("partition", ["spatial", "bands"])
@pytest.mark.parametrize(("alpha", "budget"), [(0.5, 16), (0.5, 21), (0.25, 13), (0.7, 11)])
@pytest.mark.parametrize("grid", [(2, 2), (1, 2), (4, 1)])
def test_it_keeps_what_the_formula_says(
    classes: int, partition: str, alpha: float, budget: int, grid: tuple[int, int]
) -> None:
    tower = random_tower(1 + grid[0] * grid[1], classes=classes, seed=3)
    view, tokens = seen(tower, [[Tiled(grid)]])
    choice = HiRED(budget, alpha=alpha, partition=partition).choose(view)  # type: ignore[arg-type]
    counts = slow_counts(tower, budget, alpha, grid, partition == "bands")
    assert choice.details[0]["crop_budgets"] == counts
    assert sum(counts) == budget
    assert sorted(choice.kept[0].tolist()) == slow_best(tower, tokens[0], counts)


def test_a_ninth_of_five_crops_of_576() -> None:
    """All that the class token looks at first lies in the upper left corner."""
    first, later = torch.zeros(5, 576), torch.randn(5, 576)
    corner = torch.arange(576).view(24, 24)[:12, :12].flatten()
    first[0, corner] = 1.0
    first[0, 300:444] = 0.5  # 144 more make the 288 best: rows 12 to 18, both sides
    view, _ = seen(tower_with_rows({0: first, 1: later}), [[Tiled((2, 2))]])
    choice = HiRED(320).choose(view)
    base, *tiles = choice.details[0]["crop_budgets"]
    assert (base, sum(tiles)) == (160, 160)
    # Cells 300 to 443 lie in columns 12 to 23 of row 12, rows 13 to 17, columns 0 to 11 of row 18.
    lower_left, lower_right = 5 * 12 + 12, 12 + 5 * 12
    assert tiles == [80, 0, 160 * lower_left // 288, 160 * lower_right // 288]
    bands = HiRED(320, partition="bands").choose(view).details[0]["crop_budgets"]
    assert bands[0] == 160
    # Bands of six rows: half the corner in each of the first two, 132 cells in the third.
    assert bands[1:] == slow_divided(160, [72, 72, 432 - 300, 444 - 432])


def test_single_view_ranked_without_division() -> None:
    tower = random_tower(1)
    view, tokens = seen(tower, [[Plain()]])
    for alpha in (0.0, 0.5, 1.0):
        kept = HiRED(5, alpha=alpha).choose(view).kept[0]
        assert sorted(kept.tolist()) == slow_best(tower, tokens[0], [5])


def test_what_does_not_fit_goes_elsewhere() -> None:
    first = torch.zeros(3, 16)
    first[0, [0, 1, 4, 5, 8, 9, 12, 13]] = 1.0  # the left half
    tower = tower_with_rows({0: first, 1: torch.randn(3, 16)})
    view, _ = seen(tower, [[Tiled((1, 2))]])
    budgets = [HiRED(k).choose(view).details[0]["crop_budgets"] for k in (20, 40, 47)]
    assert budgets == [[10, 10, 0], [16, 16, 8], [16, 16, 15]]
    assert HiRED(30, alpha=0.0).choose(view).details[0]["crop_budgets"] == [0, 15, 15]
    assert HiRED(30, alpha=1.0).choose(view).details[0]["crop_budgets"] == [16, 7, 7]
    cut, _ = seen(tower, [[Tiled((1, 2), cut=(0, 3))]])
    assert HiRED(16, alpha=0.25).choose(cut).details[0]["crop_budgets"] == [8, 4, 4]


def test_images_divided_by_number_of_crops() -> None:
    tower = random_tower(6)
    view, _ = seen(tower, [[Tiled((2, 2)), Plain()]])
    budgets = HiRED(24).choose(view).details[0]["crop_budgets"]
    assert (sum(budgets[:5]), budgets[5]) == (20, 4)


@pytest.mark.parametrize("budget", [1, 2, 17, 0.5, 1.0])
def test_sample_alone_equals_sample_in_batch(budget: float) -> None:
    tower = random_tower(CROPS)
    method = HiRED(budget)
    view, tokens = seen(tower, BATCH)
    together = method.choose(view)
    start = 0
    for images, kept, mine in zip(BATCH, together.kept, tokens, strict=True):
        count = sum(image.crops for image in images)
        alone, _ = seen(tower.only(slice(start, start + count)), [images])
        assert torch.equal(method.choose(alone).kept[0], kept)
        wanted = method.num_kept(alone)[0]
        assert len(set(kept.tolist())) == wanted <= len(mine)
        start += count


def test_settings() -> None:
    method = HiRED(64)
    assert list(method.watched_vision_blocks(24, 22)) == [0, 22]
    assert list(method.watched_vision_blocks(1, 0)) == [0]
    assert method.drops_newlines
    with pytest.raises(InputError, match=r"number from 0 to 1, got 1\.5"):
        HiRED(64, alpha=1.5)
    with pytest.raises(InputError, match="partition must be 'spatial' or 'bands', got 'rows'"):
        HiRED(64, partition="rows")  # type: ignore[arg-type]
