import math

import pytest
import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods.globalcom2 import GlobalCom2, weigh_tiles

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
    tower_with_rows,
)

BATCH: list[list[Image]] = [
    [Tiled((2, 2), cut=(1, 0))],
    [Tiled((1, 3), cut=(0, 1)), Tiled((2, 1))],
    [Tiled((2, 3))],
]
CROPS = 5 + 4 + 3 + 7


def slow_scores(tower: Tower, crop: int) -> list[float]:
    if tower.classes == 0:
        features = tower.features[crop]
        mean = features.mean(0)
        return [-float(one @ mean / (one.norm() * mean.norm())) for one in features]
    queries, keys = tower.queries[2][crop], tower.keys[2][crop]
    heads = [
        [float(query[0] @ key[token]) * tower.scaling for token in range(1, len(key))]
        for query, key in zip(queries, keys, strict=True)
    ]
    return [sum(each) / len(each) for each in zip(*heads, strict=True)]


def slow_enlarged(scores: list[float], side: int, row: int, column: int, size: Tensor) -> float:
    """Bilinear, pixel centers at halves, edges repeated."""
    value = 0.0
    ends = []
    for place, count in zip((row, column), size.tolist(), strict=True):
        exact = max((place + 0.5) * side / count - 0.5, 0.0)
        low = min(int(exact), side - 1)
        part = exact - low
        ends.append([(low, 1 - part), (min(low + 1, side - 1), part)])
    for up, weight in ends[0]:
        for left, other in ends[1]:
            value += weight * other * scores[up * side + left]
    return value


def slow_counts(
    tower: Tower, total: int, base: int, sizes: list[int], grid: tuple[int, int]
) -> list[int]:
    """Budgets of base view and tiles, if all of them fit."""
    side, scores = tower.side, slow_scores(tower, base)
    sums = [0.0] * (grid[0] * grid[1])
    for cell, score in enumerate(scores):
        row, column = divmod(cell, side)
        down = min(row // (side // grid[0]), grid[0] - 1)
        across = min(column // (side // grid[1]), grid[1] - 1)
        sums[down * grid[1] + across] += score
    powers = [math.exp((each - max(sums)) / 10) for each in sums]
    weights = [power / sum(powers) for power in powers]
    ratios = [1 + weight - 1 / len(weights) for weight in weights]
    full = side**2 * total // (side**2 + sum(sizes))
    parts = [size * ratio for size, ratio in zip(sizes, ratios, strict=True)]
    exact = [(total - full) * part / sum(parts) for part in parts]
    given = [math.floor(each) for each in exact]
    order = sorted(range(len(exact)), key=lambda place: (given[place] - exact[place], place))
    for place in order[: total - full - sum(given)]:
        given[place] += 1
    return [full, *given]


def slow_globalcom2(
    tower: Tower, tokens: list[Token], budget: int, grid: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Kept tokens, and how many of each crop, of a sample with one image."""
    crops = crops_of(tokens)
    base, *tiles = crops
    counts = slow_counts(tower, budget, base, [len(crops[tile]) for tile in tiles], grid)
    size = torch.tensor(
        [1 + max(token[axis] for token in tokens if token.frame == 1) for axis in (3, 4)]
    )
    whole = slow_scores(tower, base)
    kept = []
    for (crop, places), count in zip(crops.items(), counts, strict=True):
        scores = slow_scores(tower, crop)
        own = torch.tensor([scores[tokens[place].cell] for place in places])
        if crop != base:
            shared = torch.tensor(
                [slow_enlarged(whole, tower.side, *tokens[place][3:], size) for place in places]
            )
            own = own / own.norm() + shared / shared.norm()
        order = sorted(range(len(places)), key=lambda number: (-float(own[number]), number))
        kept += [places[number] for number in order[:count]]
    return sorted(kept), counts


@pytest.mark.parametrize("classes", [0, 1])
@pytest.mark.parametrize("budget", [1, 6, 19, 30])
@pytest.mark.parametrize(
    "image", [Tiled((2, 2)), Tiled((2, 2), cut=(1, 0)), Tiled((1, 3), cut=(0, 2)), Tiled((3, 1))]
)
def test_it_keeps_what_the_formula_says(classes: int, budget: int, image: Tiled) -> None:
    tower = random_tower(image.crops, classes=classes, seed=5)
    view, tokens = seen(tower, [[image]], newlines=False)
    choice = GlobalCom2(budget).choose(view)
    kept, counts = slow_globalcom2(tower, tokens[0], budget, image.grid)
    assert sum(counts) == budget
    assert choice.details[0]["crop_budgets"] == counts
    assert sorted(choice.kept[0].tolist()) == kept


def test_a_ninth_of_five_crops_of_576() -> None:
    view, tokens = seen(tower_with_rows({2: torch.zeros(5, 576)}), [[Tiled()]], newlines=False)
    choice = GlobalCom2(320).choose(view)
    assert choice.details[0]["crop_budgets"] == [64] * 5
    first = [tokens[0][place] for place in choice.kept[0].tolist()]
    assert {token.cell for token in first if token.crop == 0} == set(range(64))


def test_ratios_follow_the_sums_of_regions() -> None:
    shown = torch.zeros(4, 4)
    shown[0, 3] = 10 * math.log(3.0)  # upper right: weights 1, 3, 1, 1 of 6
    expected = [1 + 1 / 6 - 1 / 4, 1 + 3 / 6 - 1 / 4, 1 + 1 / 6 - 1 / 4, 1 + 1 / 6 - 1 / 4]
    assert weigh_tiles(shown, (2, 2), 10.0) == pytest.approx(expected)


def test_division_remainder_goes_to_last_tile() -> None:
    shown = torch.zeros(5, 5)
    shown[:, 2:] = math.log(2.0) * 10 / 15  # one column each for tile 0 and 1, three for the last
    assert weigh_tiles(shown, (1, 3), 10.0) == pytest.approx(
        [1 + 1 / 4 - 1 / 3, 1 + 1 / 4 - 1 / 3, 1 + 2 / 4 - 1 / 3]
    )


def test_full_tile_passes_rest_to_others() -> None:
    rows = torch.zeros(3, 16)
    rows[0, [0, 4, 8, 12]] = 100.0  # the left tile gets ratio 1.5, the right one 0.5
    view, _ = seen(tower_with_rows({2: rows}), [[Tiled((1, 2))]], newlines=False)
    budgets = [GlobalCom2(k).choose(view).details[0]["crop_budgets"] for k in (12, 36, 47, 48)]
    assert budgets == [[4, 6, 2], [12, 16, 8], [15, 16, 16], [16, 16, 16]]


@pytest.mark.parametrize("budget", [3, 40, 0.5, 1.0])
def test_sample_alone_equals_sample_in_batch(budget: float) -> None:
    tower = random_tower(CROPS)
    method = GlobalCom2(budget)
    view, tokens = seen(tower, BATCH, newlines=False)
    together = method.choose(view)
    start = 0
    for images, kept, mine in zip(BATCH, together.kept, tokens, strict=True):
        count = sum(image.crops for image in images)
        alone, _ = seen(tower.only(slice(start, start + count)), [images], newlines=False)
        assert torch.equal(method.choose(alone).kept[0], kept)
        assert len(set(kept.tolist())) == method.num_kept(alone)[0] <= len(mine)
        start += count


def test_images_divided_by_tokens_and_base_view() -> None:
    tower = random_tower(8, seed=2)
    view, tokens = seen(tower, [[Tiled((2, 2)), Tiled((1, 2))]], newlines=False)
    choice = GlobalCom2(32).choose(view)
    counts = choice.details[0]["crop_budgets"]
    assert (sum(counts[:5]), sum(counts[5:])) == (20, 12)
    second = tower.only(slice(5, 8))
    alone, _ = seen(second, [[Tiled((1, 2))]], newlines=False)
    expected = GlobalCom2(12).choose(alone).kept[0] + 80
    kept = choice.kept[0]
    assert sorted(kept[kept >= 80].tolist()) == sorted(expected.tolist())
    assert len(tokens[0]) == 80 + 48


@pytest.mark.parametrize("image", [Plain(), Video(2)])
def test_image_without_tiles_raises(image: Image) -> None:
    view, _ = seen(random_tower(5 + image.crops), [[Tiled()], [image]], newlines=False)
    with pytest.raises(InputError, match="image 0 of sample 1 has only one view"):
        GlobalCom2(8).choose(view)


def test_settings() -> None:
    method = GlobalCom2(64)
    assert list(method.watched_vision_blocks(24, 22)) == [23]
    assert method.positions == "reindex"
    assert not method.drops_newlines
    assert "tiles" in GlobalCom2.card.needs
    with pytest.raises(InputError, match="temperature must be above 0, got 0"):
        GlobalCom2(64, temperature=0.0)
