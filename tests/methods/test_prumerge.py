import pytest
import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods.prumerge import PruMerge, PruMergePlus, count_outliers

from .crops import (
    Image,
    Plain,
    Tiled,
    Token,
    Tower,
    Video,
    crops_of,
    project,
    random_tower,
    seen,
    slow_even,
    tower_with_rows,
)

BATCH: list[list[Image]] = [
    [Plain(), Tiled((2, 2), cut=(2, 0))],
    [Plain()],
    [Tiled((1, 3), cut=(0, 1)), Plain()],
    [Video(3)],
]
CROPS = 6 + 1 + 5 + 3
Made = list[tuple[int, Tensor]]


def slow_attention(tower: Tower, crop: int) -> tuple[list[float], list[Tensor]]:
    """Scores of the cells, one head over the whole width, and their keys of unit length."""
    query, key = (
        torch.cat(list(each[tower.depth - 1][crop]), dim=-1) for each in (tower.queries, tower.keys)
    )
    logits = torch.stack([(one * key).sum(-1) / len(one) ** 0.5 for one in query])
    weights = logits.exp() / logits.exp().sum(-1, keepdim=True)
    row = weights[0] if tower.classes else weights.mean(0)
    keys = [one / one.norm() for one in key[tower.classes :]]
    return row[tower.classes :].tolist(), keys


def slow_chosen(scores: list[float], count: int, plus: bool) -> list[int]:
    """Which of the visible cells' scores stay, for a fixed number of them."""
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    spread = count // 2 if plus else 0
    kept = order[: count - spread]
    rest = [place for place in range(len(scores)) if place not in kept]
    return sorted(kept + [rest[int((step + 0.5) * len(rest) / spread)] for step in range(spread)])


def slow_crop(
    tower: Tower, tokens: list[Token], crop: int, places: list[int], kept: list[int], near: int
) -> tuple[Made, Made]:
    """Enriched tokens, and the pooled one, of a crop that keeps some of its places."""
    scores, keys = slow_attention(tower, crop)
    cells = [tokens[place].cell for place in places]
    features = tower.features[crop, tower.classes :]
    enriched = []
    for own in kept:
        others = [cell for cell in cells if cell != cells[own]]
        others.sort(key=lambda cell: (-float(keys[cells[own]] @ keys[cell]), cell))
        added = sum(scores[cell] * features[cell] for cell in others[:near])
        enriched.append((places[own], tower.project(features[cells[own]] + added)))
    dropped = [cell for place, cell in enumerate(cells) if place not in kept]
    pooled = sum(scores[cell] * features[cell] for cell in dropped)
    assert isinstance(pooled, Tensor)
    return enriched, [(-1, tower.project(pooled))]


def slow_prumerge(
    tower: Tower, tokens: list[Token], media: list[int], budget: int, near: int, plus: bool
) -> Made:
    crops = crops_of(tokens)
    counts = slow_even(budget, [len(each) for each in crops.values()])
    sections: dict[tuple[int, int], list[tuple[Made, Made]]] = {}
    for (crop, places), count in zip(crops.items(), counts, strict=True):
        section = sections.setdefault((media[places[0]], tokens[places[0]].frame), [])
        if count == len(places):
            cells = [tower.classes + tokens[place].cell for place in places]
            same = [
                (place, tower.project(tower.features[crop, cell]))
                for place, cell in zip(places, cells, strict=True)
            ]
            section.append((same, []))
        elif count:
            scores, _ = slow_attention(tower, crop)
            shown = [scores[tokens[place].cell] for place in places]
            kept = slow_chosen(shown, count - 1, plus)
            section.append(slow_crop(tower, tokens, crop, places, kept, near))
    found: Made = []
    for parts in sections.values():
        found += sorted((one for part in parts for one in part[0]), key=lambda one: one[0])
        found += [one for part in parts for one in part[1]]
    return found


@pytest.mark.parametrize("kind", [PruMerge, PruMergePlus])
@pytest.mark.parametrize(("budget", "near"), [(1, 32), (4, 3), (14, 32), (16, 5)])
@pytest.mark.parametrize("classes", [0, 1])
def test_it_makes_what_the_formula_says(
    kind: type[PruMerge], budget: int, near: int, classes: int
) -> None:
    images = BATCH if classes else BATCH[:3]
    tower = random_tower(sum(p.crops for row in images for p in row), classes=classes)
    view, tokens = seen(tower, images)
    choice = kind(budget, neighbours=near).choose(view)
    assert choice.hidden_states is not None
    assert choice.sources is not None
    for sample, mine in enumerate(tokens):
        media = view.medium[sample].tolist()
        made = slow_prumerge(tower, mine, media, budget, near, kind is PruMergePlus)
        kept = choice.kept[sample].sort().values
        assert len(kept.unique()) == len(kept) == budget == len(made)
        assert choice.sources[sample].tolist() == [source for source, _ in made]
        expected = torch.stack([state for _, state in made])
        torch.testing.assert_close(choice.hidden_states[sample, kept], expected)


@pytest.mark.parametrize("kind", [PruMerge, PruMergePlus])
def test_sufficient_budget_changes_nothing(kind: type[PruMerge]) -> None:
    view, tokens = seen(random_tower(CROPS), BATCH)
    choice = kind(1000).choose(view)
    assert choice.hidden_states is not None
    for sample, mine in enumerate(tokens):
        assert choice.kept[sample].tolist() == list(range(len(mine)))
        assert torch.equal(
            choice.hidden_states[sample, : len(mine)], view.hidden_states[sample, : len(mine)]
        )


def outstanding(count: int) -> Tensor:
    """Logits of 576 cells of which so many stand out: every fifth from 2 on."""
    logits = torch.linspace(0, 0.01, 576)
    logits[torch.arange(count) * 5 + 2] = 3.0
    return logits.unsqueeze(0)


@pytest.mark.parametrize(("count", "step"), [(17, 11), (31, 6), (46, 4), (69, 2)])
def test_adaptive_numbers(count: int, step: int) -> None:
    """A fraction of .03, .055, .08 and .12 of 576 tokens, and grids of 53, 96, 144 and 288 more."""
    view, _ = seen(tower_with_rows({2: outstanding(count)}), [[Plain()]])
    best = {number * 5 + 2 for number in range(count)}
    plain = PruMerge(1.0, adaptive=True).choose(view)
    assert plain.sources is not None
    assert plain.sources[0].tolist() == [*sorted(best), -1]
    plus = PruMergePlus(1.0, adaptive=True).choose(view)
    assert plus.sources is not None
    grid = set(range(0, 575, step))
    assert len(grid) == {11: 53, 6: 96, 4: 144, 2: 288}[step]
    assert plus.sources[0].tolist() == [*sorted(best | grid), -1]


def test_step_one_excludes_last_patch() -> None:
    """As in the released code: 575 of 576, and the pooled token."""
    view, _ = seen(tower_with_rows({2: outstanding(110)}), [[Plain()]])
    plus = PruMergePlus(1.0, adaptive=True).choose(view)
    assert plus.sources is not None
    assert plus.sources[0].tolist() == [*range(575), -1]


def test_adaptive_count_limited_by_budget() -> None:
    view, _ = seen(tower_with_rows({2: outstanding(31)}), [[Plain()]])
    for kind in (PruMerge, PruMergePlus):
        sizes = [len(kind(k, adaptive=True).choose(view).kept[0]) for k in (10, 31, 32, 500)]
        assert sizes[:2] == [10, 31]
        assert sizes[2:] == (
            [32, 32]
            if kind is PruMerge
            else [32, 1 + len({5 * i + 2 for i in range(31)} | set(range(0, 576, 6)))]
        )
        capped, fixed = (kind(20, adaptive=on).choose(view).kept[0] for on in (True, False))
        assert torch.equal(capped, fixed)


@pytest.mark.parametrize("kind", [PruMerge, PruMergePlus])
def test_adaptive_counts_few_and_many_outliers(kind: type[PruMerge]) -> None:
    flat, _ = seen(tower_with_rows({2: torch.zeros(1, 576)}), [[Plain()]])
    kept = kind(1.0, adaptive=True).choose(flat).kept[0]
    assert len(kept) == (2 if kind is PruMerge else 4)  # 0, 192, 384, and the pooled one
    many, _ = seen(tower_with_rows({2: outstanding(110)}), [[Plain()]])
    kept = kind(1.0, adaptive=True).choose(many).kept[0]
    assert len(kept) == (111 if kind is PruMerge else 576)


def test_outliers_lie_above_the_upper_whisker() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 13.0, 13.1])
    # Quartiles 3 and 7: the whisker ends at 13.
    assert count_outliers(scores) == 1
    assert count_outliers(torch.cat([scores[:-2], torch.tensor([13.01, 20.0])])) == 2


def test_adaptive_numbers_are_those_of_each_crop() -> None:
    rows = torch.cat([outstanding(17), outstanding(31)])
    view, _ = seen(tower_with_rows({2: rows}), [[Plain()], [Plain()]])
    kept = PruMerge(1.0, adaptive=True).choose(view).kept
    assert [len(each) for each in kept] == [18, 32]


def test_pooled_token_last_sums_dropped_tokens() -> None:
    logits = torch.zeros(1, 4)
    logits[0, 3] = 1.0
    tower = tower_with_rows({2: logits})
    view, _ = seen(tower, [[Plain()]])
    choice = PruMerge(2, neighbours=0).choose(view)
    assert choice.hidden_states is not None
    assert choice.sources is not None
    assert choice.sources[0].tolist() == [3, -1]
    weight = 1 / (4 + torch.e)  # the class token has a fraction too
    first, last = choice.hidden_states[0, choice.kept[0]]
    torch.testing.assert_close(first, project(tower.features[0, 4]))
    torch.testing.assert_close(last, project(weight * tower.features[0, 1:4].sum(0)))


@pytest.mark.parametrize("kind", [PruMerge, PruMergePlus])
@pytest.mark.parametrize("adaptive", [False, True])
def test_sample_alone_equals_sample_in_batch(kind: type[PruMerge], adaptive: bool) -> None:
    tower = random_tower(CROPS)
    method = kind(0.4, adaptive=adaptive)
    together = method.choose(seen(tower, BATCH)[0])
    assert together.hidden_states is not None
    start = 0
    for sample, images in enumerate(BATCH):
        count = sum(image.crops for image in images)
        alone = method.choose(seen(tower.only(slice(start, start + count)), [images])[0])
        assert alone.hidden_states is not None
        kept = alone.kept[0]
        assert torch.equal(kept, together.kept[sample])
        torch.testing.assert_close(
            alone.hidden_states[0, kept], together.hidden_states[sample, kept]
        )
        start += count


def test_settings() -> None:
    method = PruMerge(64)
    assert list(method.watched_vision_blocks(24, 22)) == [23]
    assert method.positions == "reindex"
    assert method.drops_newlines
    assert method.merges
    assert (PruMerge.name, PruMergePlus.name) == ("prumerge", "prumerge+")
    with pytest.raises(InputError, match="neighbours must be at least 0, got -1"):
        PruMerge(64, neighbours=-1)
