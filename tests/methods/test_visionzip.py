import pytest
import torch
from torch import Tensor

from tokencover.methods import View
from tokencover.methods.visionzip import VisionZip

from .crops import (
    CLASS,
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

Made = list[tuple[int, Tensor]]
"""The visual token that each new one comes from, and its state."""


def slow_crop(
    tower: Tower, tokens: list[Token], crop: int, places: list[int], count: int
) -> tuple[Made, Made, Made]:
    """Class token, dominant and contextual tokens of one crop."""
    states = tower.features[crop]

    def feature(place: int) -> Tensor:
        return states[tower.classes + tokens[place].cell]

    def key(place: int) -> Tensor:
        mean = tower.keys[tower.feature_block][crop].mean(0)[tower.classes + tokens[place].cell]
        return torch.nn.functional.normalize(mean, dim=0)

    if count == 0 or count == len(places):
        return [], [(place, tower.project(feature(place))) for place in places[:count]], []
    contextual = int(count * 5 / 32 + 0.5)
    dominant = count - contextual - (tower.classes > 0)
    scores = slow_scores(tower, tower.feature_block, crop)
    best = sorted(places, key=lambda place: (-scores[tokens[place].cell], place))[:dominant]
    rest = [place for place in places if place not in best]
    targets = rest[:: max(1, len(rest) // max(contextual, 1))][:contextual]
    joined: dict[int, list[Tensor]] = {target: [] for target in targets}
    for place in rest:
        if targets and place not in targets:
            nearest = max(targets, key=lambda target: float(key(place) @ key(target)))
            joined[nearest].append(feature(place))
    merged = []
    for target, members in joined.items():
        mean = torch.stack(members).mean(0) if members else torch.zeros(states.shape[-1])
        merged.append((target, tower.project(feature(target) + mean)))
    own_slot = [place for place, token in enumerate(tokens) if token[:2] == (crop, CLASS)]
    source = own_slot[0] if own_slot else -1
    classes = [(source, tower.project(states[0]))] if tower.classes else []
    return classes, [(place, tower.project(feature(place))) for place in sorted(best)], merged


def slow_visionzip(tower: Tower, tokens: list[Token], media: list[int], budget: int) -> Made:
    crops = crops_of(tokens)
    sizes = [len(each) for each in crops.values()]
    counts = slow_even(min(budget, sum(sizes)), sizes)
    sections: dict[tuple[int, int], list[tuple[Made, Made, Made]]] = {}
    for (crop, places), count in zip(crops.items(), counts, strict=True):
        where = media[places[0]], tokens[places[0]].frame
        made = slow_crop(tower, tokens, crop, places, count)
        sections.setdefault(where, []).append(made)
    found: Made = []
    for (_, frame), parts in sections.items():
        classes, dominant, merged = ([one for part in parts for one in part[i]] for i in range(3))
        dominant = sorted(dominant, key=lambda one: one[0])
        is_video = any(token.cell == CLASS for token in tokens)
        tiles = frame == 1 and not is_video
        found += dominant + classes + merged if tiles else classes + dominant + merged
    return found


def check(method: VisionZip, view: View, tokens: list[list[Token]], tower: Tower) -> None:
    choice = method.choose(view)
    assert choice.hidden_states is not None
    assert choice.sources is not None
    for sample, mine in enumerate(tokens):
        budget = method.num_kept(view)[sample]
        made = slow_visionzip(tower, mine, view.medium[sample].tolist(), budget)
        kept = choice.kept[sample].sort().values
        assert len(kept.unique()) == len(kept) == budget == len(made)
        assert choice.sources[sample].tolist() == [source for source, _ in made]
        expected = torch.stack([state for _, state in made])
        torch.testing.assert_close(choice.hidden_states[sample, kept], expected)
        images = view.medium[sample, kept].tolist()
        sources = [(place, source) for place, (source, _) in enumerate(made) if source >= 0]
        assert all(images[place] == view.medium[sample, source] for place, source in sources)


@pytest.mark.parametrize("budget", [1, 3, 9, 24, 40, 60])
def test_it_makes_what_the_formula_says(budget: int) -> None:
    tower = random_tower(CROPS)
    view, tokens = seen(tower, BATCH)
    within = [budget <= sum(token.cell >= 0 for token in mine) for mine in tokens]
    for sample, fits in enumerate(within):
        if fits:
            start = sum(image.crops for row in BATCH[:sample] for image in row)
            part = tower.only(slice(start, start + sum(p.crops for p in BATCH[sample])))
            check(VisionZip(budget), *seen(part, [BATCH[sample]]), part)
    if all(within):
        check(VisionZip(budget), view, tokens, tower)


@pytest.mark.parametrize("budget", [1, 5, 12, 30])
def test_encoder_without_class_tokens_keeps_none(budget: int) -> None:
    tower = random_tower(7, classes=0)
    images: list[list[Image]] = [[Tiled((2, 2))], [Plain(), Plain()]]
    view, tokens = seen(tower, images)
    check(VisionZip(budget), view, tokens, tower)


def test_sufficient_budget_changes_nothing() -> None:
    view, tokens = seen(random_tower(CROPS), BATCH)
    choice = VisionZip(1000).choose(view)
    assert choice.hidden_states is not None
    assert choice.sources is not None
    for sample, mine in enumerate(tokens):
        everyone = list(range(len(mine)))
        assert choice.kept[sample].tolist() == choice.sources[sample].tolist() == everyone
        assert torch.equal(
            choice.hidden_states[sample, : len(mine)], view.hidden_states[sample, : len(mine)]
        )


@pytest.mark.parametrize(
    ("budget", "dominant", "contextual"), [(64, 54, 10), (128, 108, 20), (192, 162, 30)]
)
def test_the_papers_numbers(budget: int, dominant: int, contextual: int) -> None:
    """Contextual tokens of 576 - (dominant - 1) others lie at even steps among them."""
    logits = torch.zeros(1, 576)
    logits[0, : dominant - 1] = 1.0
    view, _ = seen(tower_with_rows({1: logits}), [[Plain()]])
    choice = VisionZip(budget).choose(view)
    assert choice.sources is not None
    step = (577 - dominant) // contextual
    targets = [dominant - 1 + step * number for number in range(contextual)]
    assert choice.sources[0].tolist() == [-1, *range(dominant - 1), *targets]
    assert choice.details[0]["crop_budgets"] == [budget]


def test_contextual_token_is_target_plus_member_mean() -> None:
    tower = random_tower(1, side=3)
    keys = torch.zeros(1, 2, 10, 3)
    keys[..., 0] = 1.0
    tower = Tower(tower.features, tower.queries, {1: keys}, 3, 1, 1.0)
    view, _ = seen(tower, [[Plain()]])
    choice = VisionZip(4).choose(view)  # class token, two patches, one contextual
    assert choice.hidden_states is not None
    assert choice.sources is not None
    _, *dominant, target = choice.sources[0].tolist()
    others = [cell for cell in range(9) if cell not in (*dominant, target)]
    features = tower.features[0, 1:]
    expected = project(features[target] + features[others].mean(0))
    torch.testing.assert_close(choice.hidden_states[0, choice.kept[0][-1]], expected)


def test_sample_alone_equals_sample_in_batch() -> None:
    tower = random_tower(CROPS)
    method = VisionZip(0.4)
    together = method.choose(seen(tower, BATCH)[0])
    assert together.hidden_states is not None
    assert together.sources is not None
    start = 0
    for sample, images in enumerate(BATCH):
        count = sum(image.crops for image in images)
        alone = method.choose(seen(tower.only(slice(start, start + count)), [images])[0])
        assert alone.hidden_states is not None
        assert alone.sources is not None
        kept = alone.kept[0]
        assert torch.equal(kept, together.kept[sample])
        assert torch.equal(alone.sources[0], together.sources[sample])
        torch.testing.assert_close(
            alone.hidden_states[0, kept], together.hidden_states[sample, kept]
        )
        start += count


def test_settings() -> None:
    method = VisionZip(64)
    assert list(method.watched_vision_blocks(24, 22)) == [22]
    assert list(method.pruning_layers(32)) == [0]
    assert method.positions == "reindex"
    assert method.drops_newlines
    assert method.merges
