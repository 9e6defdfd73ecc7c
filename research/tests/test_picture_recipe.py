"""The recipe of the model for images: what it teaches, and that it teaches what it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlavaForConditionalGeneration

from research.pebble_training import (
    PICTURE_SCHEDULE,
    PebbleTrainingSettings,
    PictureLearner,
    Schedule,
    Stage,
    answer_questions,
    train,
)
from research.pebble_training.holdings import HOLDINGS, TABLES, label_holdings
from research.pebble_training.lessons import Lesson, draw_lesson
from research.pebble_training.packed_questions import answer_packs, encode_images
from research.pebble_training.part_batches import PartBatch, deal_parts, make_part_batch
from research.pebble_training.patch_labels import SCENE_GROUP_INDEX, label_scene
from research.pebble_training.phrases import describe_objects, restrict_scene
from research.pebble_training.picture_learner import compute_phrase_loss
from research.pebble_training.run_log import Tally
from research.pebble_training.tower_heads import (
    TowerHeads,
    compute_holdings_loss,
    run_whole_tower,
)
from tokencover_models.pebble.data import PICTURE_TOKENS, SCENE_QUESTIONS, make_scene
from tokencover_models.pebble.vocabulary import PICTURE_WORDS

SEED = 10_000_003
VISION = Stage("vision", "vision", 1, 1, vision_rate=1e-4)
FEW = Stage("few", "joint", 2, 1, rate=1e-4, visual_tokens=6, things=6, phrases=6, asks=False)
PART = Stage("part", "joint", 1, 1, rate=1e-4, vision_rate=1e-4, visual_tokens=192)
TINY = Schedule((VISION, FEW, PART), kinds=("exist", "place", "color"))
LEARNER = PictureLearner()


@pytest.fixture(scope="module")
def model() -> LlavaForConditionalGeneration:
    return LEARNER.start(1)


def make_batch(stage: Stage, *seeds: int) -> PartBatch:
    kinds = SCENE_QUESTIONS.kinds
    return make_part_batch(Lesson(stage, seeds or (SEED,), kinds, True, stage.visual_tokens))


def test_patches_may_be_numbered_anew() -> None:
    lesson = Lesson(PART, (SEED,), SCENE_QUESTIONS.kinds, True, PART.visual_tokens)
    kept, anew = make_part_batch(lesson), make_part_batch(replace(lesson, renumbered=True))
    assert torch.equal(kept.positions, anew.positions)
    assert kept.asked is not None
    assert anew.asked is not None
    for mine, theirs in ((kept.phrases, anew.phrases), (kept.asked, anew.asked)):
        assert torch.equal(mine.tokens, theirs.tokens)
        assert (mine.places, theirs.places) == (PICTURE_TOKENS, PART.visual_tokens)
        assert torch.equal(mine.positions, kept.positions)
        assert theirs.positions[0].tolist() == list(range(PART.visual_tokens))


def test_every_second_lesson_is_numbered_anew() -> None:
    stages = PICTURE_SCHEDULE.stages
    assert [stage.renumber for stage in stages] == [0.0] + [0.5] * (len(stages) - 1)
    drawn = [draw_lesson(PICTURE_SCHEDULE, stages[-1], (SEED,), coin) for coin in range(200)]
    assert 80 < sum(lesson.renumbered for lesson in drawn) < 120


def test_every_object_is_described_once_with_its_own_words() -> None:
    scene = make_scene(SEED)
    phrases = describe_objects(scene, np.random.default_rng(0))
    things = sorted(sorted(p.words) for p in phrases if p.kind == "thing")
    animals = sorted(sorted(p.words) for p in phrases if p.kind == "animal")
    assert things == sorted(sorted((t.color, t.shape, t.digit, t.region)) for t in scene.things)
    assert animals == sorted(sorted((a.color, a.kind, a.region)) for a in scene.animals)
    assert phrases != describe_objects(scene, np.random.default_rng(1))


def test_a_part_shows_what_its_patches_hold_and_nothing_else() -> None:
    scene = make_scene(SEED)
    thing, animal = scene.things[4], scene.animals[2]
    patches = np.array([thing.row * 24 + thing.column, animal.row * 24 + animal.column])
    part = restrict_scene(scene, patches)
    assert (part.things, part.animals, part.place) == ((thing,), (animal,), scene.place)
    nothing = restrict_scene(scene, np.array([], dtype=np.int64))
    asked = {question.kind for question in SCENE_QUESTIONS.ask(nothing)}
    assert asked == {"exist", "empty", "place"} - ({"exist"} if not nothing.things else set())


def test_holdings_are_shares_of_what_is_there() -> None:
    scene = make_scene(SEED)
    told = label_holdings(scene)
    assert told.shape == (HOLDINGS,)
    sums = [told[start:end].sum() for start, end in TABLES]
    assert sums == pytest.approx([1.0] * len(TABLES))
    reds = sum(thing.color == "red" for thing in scene.things)
    assert told[0] == pytest.approx(reds / len(scene.things))
    one = replace(scene, things=scene.things[:1], animals=())
    told = label_holdings(one, whole=False)
    assert [round(float(told[a:b].sum())) for a, b in TABLES] == [1, 1, 1, 0, 1, 1, 0, 0]
    assert set(told.tolist()) == {0.0, 1.0}


def test_parts_are_dealt_without_repeats() -> None:
    is_ground = label_scene(make_scene(SEED))[:, SCENE_GROUP_INDEX["stuff"]] != -1
    rng = np.random.default_rng(0)
    parts = deal_parts(rng, is_ground, 6, 30)
    assert len(parts) == (~is_ground).sum() // 6
    assert all(len(set(part.tolist())) == 30 and (~is_ground[part]).sum() == 6 for part in parts)
    objects = np.concatenate([part[~is_ground[part]] for part in parts])
    assert len(set(objects.tolist())) == len(objects)


def test_a_random_part_does_not_care_what_patches_show() -> None:
    is_ground = label_scene(make_scene(SEED))[:, SCENE_GROUP_INDEX["stuff"]] != -1
    rng = np.random.default_rng(0)
    drawn = [deal_parts(rng, is_ground, 0, 96)[0] for _ in range(400)]
    share = np.mean([(~is_ground[part]).mean() for part in drawn])
    assert share == pytest.approx((~is_ground).mean(), abs=0.005)
    (whole,) = deal_parts(rng, is_ground, 0, PICTURE_TOKENS)
    assert whole.tolist() == list(range(PICTURE_TOKENS))


def test_phrases_are_about_what_is_shown() -> None:
    batch = make_batch(FEW)
    scene = make_scene(SEED)
    for places, tokens, targets in zip(
        batch.positions, batch.phrases.tokens, batch.phrases.targets, strict=True
    ):
        shown = restrict_scene(scene, places.numpy())
        expected = sorted(sorted(p.words) for p in describe_objects(shown, np.random.default_rng()))
        assert (tokens[:, 0] == PICTURE_WORDS.index("the")).all()
        told = [[PICTURE_WORDS[i] for i in row if i >= 0] for row in targets.tolist()]
        assert sorted(sorted(words) for words in told) == expected


def test_packs_do_not_see_each_other(model: LlavaForConditionalGeneration) -> None:
    batch = make_batch(PART)
    assert batch.asked is not None
    with torch.inference_mode():
        visual = encode_images(model, batch.pixels)[0].gather(
            1, batch.positions[..., None].expand(-1, -1, 128)
        )
        phrases, answers = answer_packs(model, visual, [batch.phrases, batch.asked], True)
        alone = answer_questions(model, visual, batch.asked, True)
        told = answer_questions(model, visual, batch.phrases, True)
    assert torch.allclose(answers, alone, atol=1e-4)
    assert torch.allclose(phrases, told, atol=1e-4)


def test_copies_of_the_class_token_see_their_part_and_change_nothing(
    model: LlavaForConditionalGeneration,
) -> None:
    batch = make_batch(VISION)
    tower = model.model.vision_tower
    with torch.inference_mode():
        plain = run_whole_tower(tower, batch.pixels, batch.glances[:, :0])
        sight = run_whole_tower(tower, batch.pixels, batch.glances)
        stock: Any = tower(batch.pixels, output_hidden_states=True)
        everything = torch.ones(1, 1, PICTURE_TOKENS, dtype=torch.bool)
        whole = run_whole_tower(tower, batch.pixels, everything)
    assert torch.allclose(sight.patches, plain.patches, atol=1e-4)
    assert torch.allclose(stock.hidden_states[-2][:, 1:], sight.patches, atol=1e-4)
    assert torch.allclose(stock.pooler_output, sight.end, atol=1e-4)
    assert torch.allclose(whole.glances[:, 0], whole.summary, atol=1e-4)
    assert not torch.allclose(sight.glances[:, 0], sight.glances[:, 1], atol=1e-2)


def test_telling_the_truth_costs_nothing() -> None:
    truth = torch.from_numpy(label_holdings(make_scene(SEED)))[None]
    assert compute_holdings_loss(truth.clamp_min(1e-9).log(), truth).item() < 1e-4
    assert compute_holdings_loss(torch.zeros_like(truth), truth).item() > 1
    silent = torch.zeros(1, HOLDINGS)
    assert compute_holdings_loss(torch.randn(1, HOLDINGS), silent).item() == 0


def test_only_last_words_count_as_told() -> None:
    pack = make_batch(FEW).phrases
    logits = torch.nn.functional.one_hot(pack.targets.clamp_min(0), len(PICTURE_WORDS)).float()
    loss, right = compute_phrase_loss(20 * logits, pack)
    assert loss.item() < 1e-4
    there = pack.targets[..., 0] >= 0
    assert list(right) == [True] * int(there.sum())


@pytest.mark.parametrize("stage", [VISION, FEW, PART])
def test_a_stage_trains_what_it_has_a_rate_for(
    model: LlavaForConditionalGeneration, stage: Stage
) -> None:
    helpers = LEARNER.make_helpers(0)
    lesson = draw_lesson(TINY, stage, (SEED,), 0)
    tally = Tally()
    LEARNER.compute_loss(model, helpers, lesson, tally).backward()
    parts: Any = model.model
    seeing = parts.vision_tower.encoder.layers[0].mlp.fc1.weight.grad is not None
    heads = isinstance(helpers, TowerHeads) and helpers.words.weight.grad is not None
    answering = parts.language_model.layers[0].mlp.up_proj.weight.grad is not None
    model.zero_grad(set_to_none=True)
    assert (seeing, heads) == (stage.vision_rate > 0,) * 2
    assert answering == (stage.rate > 0)
    assert set(tally.right) >= ({"phrase", "place"} if stage is PART else set())


def test_the_start_knows_nothing(model: LlavaForConditionalGeneration) -> None:
    config: Any = model.config
    assert 10 <= config.text_config.num_hidden_layers <= 12
    again, other = LEARNER.start(1), LEARNER.start(2)
    blocks: Any = model.model.language_model
    for index, block in enumerate(blocks.layers):
        keys = block.self_attn.k_proj.weight
        # No row of any head stands out, as rows that were written by hand would.
        assert keys.norm(dim=1).max() < 1.5 * keys.norm(dim=1).mean(), index
    for name, weight in model.model.language_model.layers.named_parameters():
        assert torch.equal(weight, again.model.language_model.layers.get_parameter(name))
    first = "model.language_model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(model.get_parameter(first), other.get_parameter(first))


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = PebbleTrainingSettings(tmp_path / "a", 3, 1, TINY, LEARNER)
    train(whole)
    parts = replace(whole, out=tmp_path / "b")
    train(replace(parts, stop_after=2))
    train(parts, resume=True)
    once, twice = (
        LlavaForConditionalGeneration.from_pretrained(tmp_path / name / "checkpoint")
        for name in "ab"
    )
    for name, weight in once.named_parameters():
        assert torch.equal(weight, twice.get_parameter(name)), name
    size = (tmp_path / "a" / "checkpoint" / "model.safetensors").stat().st_size
    assert size < 30e6
