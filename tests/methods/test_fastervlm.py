import pytest
import torch

from tokencover.methods.fastervlm import FasterVLM

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
    slow_even,
    slow_scores,
    tower_with_rows,
)

BATCH: list[list[Image]] = [
    [Plain(), Tiled((2, 2), cut=(2, 0))],
    [Plain()],
    [Tiled((1, 3), cut=(0, 1)), Plain()],
    [Video(3)],
]
CROPS = 6 + 1 + 5 + 3


def slow_fastervlm(tower: Tower, tokens: list[Token], budget: int) -> list[int]:
    crops = crops_of(tokens)
    counts = slow_even(
        min(budget, sum(map(len, crops.values()))), [len(each) for each in crops.values()]
    )
    kept = []
    for (crop, places), count in zip(crops.items(), counts, strict=True):
        scores = slow_scores(tower, tower.feature_block, crop)
        order = sorted(places, key=lambda place: (-scores[tokens[place].cell], place))
        kept += order[:count]
    others = [place for place, token in enumerate(tokens) if token.cell < 0]
    return sorted(kept + others[: budget - len(kept)])


@pytest.mark.parametrize("classes", [0, 1])
@pytest.mark.parametrize("budget", [1, 7, 30, 61, 1000])
def test_it_keeps_what_the_formula_says(classes: int, budget: int) -> None:
    images = BATCH if classes else BATCH[:3]
    tower = random_tower(sum(p.crops for row in images for p in row), classes=classes)
    view, tokens = seen(tower, images)
    choice = FasterVLM(budget).choose(view)
    for kept, mine in zip(choice.kept, tokens, strict=True):
        count = min(budget, len(mine))
        assert len(kept) == len(set(kept.tolist())) == count
        assert sorted(kept.tolist()) == slow_fastervlm(tower, mine, count)


def test_sample_alone_equals_sample_in_batch() -> None:
    tower = random_tower(CROPS)
    view, _ = seen(tower, BATCH)
    together = FasterVLM(0.3).choose(view)
    start = 0
    for images, kept in zip(BATCH, together.kept, strict=True):
        count = sum(image.crops for image in images)
        alone, _ = seen(tower.only(slice(start, start + count)), [images])
        assert torch.equal(FasterVLM(0.3).choose(alone).kept[0], kept)
        start += count


def test_five_crops_of_576_share_320_evenly() -> None:
    tower = random_tower(5, side=24)
    view, tokens = seen(tower, [[Tiled((2, 2))]])
    choice = FasterVLM(320).choose(view)
    kept = [tokens[0][place] for place in choice.kept[0].tolist()]
    assert [sum(token.crop == crop for token in kept) for crop in range(5)] == [64] * 5
    assert all(token.cell >= 0 for token in kept)
    assert choice.details[0]["crop_budgets"] == [64] * 5


def test_equal_scores_go_to_the_first_tokens() -> None:
    rows = torch.zeros(1, 9)
    rows[0, 6] = 1.0
    view, _ = seen(tower_with_rows({1: rows}), [[Plain()]])
    assert sorted(FasterVLM(4).choose(view).kept[0].tolist()) == [0, 1, 2, 6]


def test_watches_feature_block() -> None:
    method = FasterVLM(64)
    assert list(method.watched_vision_blocks(24, 22)) == [22]
    assert list(method.pruning_layers(32)) == [0]
    assert method.positions == "reindex"
    assert method.drops_newlines
    assert method.schedule(64, 576, 3) == [64, 64, 64]
