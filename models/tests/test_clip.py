from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_clip_answers import answer_slowly

from research.pebble_training.patch_labels import CLIP_GROUP_INDEX, CLIP_GROUPS, NONE, label_clip
from tokencover.errors import InputError
from tokencover_models.pebble.data import (
    CLIP_QUESTIONS,
    CLIP_TOKENS,
    COARSE,
    FINE,
    FRAME_SIZE,
    draw_clip,
    list_seeds,
    make_clip,
    make_clip_examples,
)
from tokencover_models.pebble.data.scene import mark_covered
from tokencover_models.pebble.vocabulary import (
    ANIMALS,
    CLIP_WORD_IDS,
    COLOR_WORDS,
    PICTURE_WORD_IDS,
)

SEEDS = st.integers(0, 2**40)
KINDS, FAMILIES, ask = CLIP_QUESTIONS.kinds, CLIP_QUESTIONS.families, CLIP_QUESTIONS.ask
CHOICES = {
    **{"exist": 2, "color": 8, "shape": 8, "read": 10, "where": 9, "animal_color": 8},
    **{"when": 8, "animal_then": 10, "order": 10, "common_color": 8, "common_shape": 8},
    **{"more": 16, "half": 2, "empty": 8, "place": 6},
}


@given(SEEDS)
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_clip_and_frames(seed: int) -> None:
    first, second = make_clip(seed), make_clip(seed)
    assert first == second
    for one, other in zip(draw_clip(first), draw_clip(second), strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


@given(SEEDS)
@settings(max_examples=50)
def test_nothing_overlaps_and_one_frame_is_empty(seed: int) -> None:
    clip = make_clip(seed)
    for frame in range(8):
        things = clip.things_in(frame)
        assert bool(things) == (frame != clip.empty_frame)
        for one, other in combinations(things, 2):
            assert not (mark_covered([one], 12) & mark_covered([other], 12)).any()
        taken = mark_covered(things, 12)
        assert not taken[0, 0]
        assert len(clip.animals_in(frame)) <= 1
        for animal in clip.animals_in(frame):
            assert not taken[animal.row, animal.column]
            assert (animal.row, animal.column) != (0, 0)
    assert len({animal.kind for animal in clip.animals}) == len(clip.animals) >= 6
    assert all(len({frame > 3 for frame in thing.frames}) == 1 for thing in clip.things)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="-3"):
        make_clip(-3)


def test_frames_show_what_the_clip_says() -> None:
    clip = make_clip(5)
    frames = [np.asarray(frame).astype(int) for frame in draw_clip(clip)]
    assert all(frame.shape == (FRAME_SIZE, FRAME_SIZE, 3) for frame in frames)
    quiet = frames[clip.empty_frame]
    for thing in clip.things:
        top, left = thing.row * 8 - 8, thing.column * 8 - 8
        part = np.s_[top : top + 24, left : left + 24]
        for frame in range(8):
            changed = np.abs(frames[frame][part] - quiet[part]).mean()
            same_cell = [t for t in clip.things_in(frame) if t.region == thing.region]
            assert (changed > 15) == bool(same_cell), (thing, frame, changed)


def test_every_token_is_described_with_its_frame() -> None:
    clip = make_clip(9)
    labels = label_clip(clip)
    assert labels.shape == (CLIP_TOKENS, len(CLIP_GROUPS)) == (8 * 145, 10)
    assert (labels[:, CLIP_GROUP_INDEX["frame"]] == np.arange(8).repeat(145)).all()
    words = labels.reshape(8, 145, -1)
    told = {
        group: words[:, 1:, CLIP_GROUP_INDEX[group]].reshape(8, 12, 12)
        for group in CLIP_GROUP_INDEX
    }
    for frame in range(8):
        seen = {(t.row, t.column) for t in clip.things_in(frame)}
        assert set(map(tuple, np.argwhere(told["shape"][frame] != NONE).tolist())) == seen
        for animal in clip.animals_in(frame):
            spot = (frame, animal.row, animal.column)
            assert ANIMALS[told["animal"][spot]] == animal.kind
            assert COLOR_WORDS[told["color"][spot]] == animal.color
    summary = words[:, 0]
    assert {CLIP_GROUPS[i].name for i in np.flatnonzero((summary != NONE).any(0))} == {
        *("place", "frame", "seen")
    }


def test_answers_agree_with_a_second_reading() -> None:
    for seed in range(150):
        clip = make_clip(seed)
        for turn in range(2):
            for question in ask(clip, turn=turn):
                assert question.answer == answer_slowly(clip, question.kind, question.text), (
                    question
                )


def test_questions_are_balanced_and_in_the_vocabulary() -> None:
    tallies: dict[str, Counter[str]] = defaultdict(Counter)
    for seed in list_seeds("test"):
        for question in ask(make_clip(seed)):
            tallies[question.kind][question.answer] += 1
            assert {*question.text.split(), question.answer} <= set(CLIP_WORD_IDS)
    assert set(tallies) == set(KINDS) == set(CHOICES)
    for kind, choices in CHOICES.items():
        assert len(tallies[kind]) == choices
        chance, asked = 1 / choices, tallies[kind].total()
        assert asked >= 150
        # Four standard deviations of the most frequent answer, with as many draws.
        slack = 4 * (chance * (1 - chance) / asked) ** 0.5
        assert max(tallies[kind].values()) / asked < chance + slack, kind
    assert min(Counter(FAMILIES.values())[family] for family in (FINE, COARSE)) >= 5


def test_the_picture_models_words_keep_their_ids() -> None:
    assert {word: CLIP_WORD_IDS[word] for word in PICTURE_WORD_IDS} == PICTURE_WORD_IDS


def test_examples_share_their_frames_and_name_their_clip() -> None:
    found = list(make_clip_examples("validation", clips=2))
    assert {example.scene_id for example in found} == {1_000_000, 1_000_001}
    first = [example for example in found if example.scene_id == 1_000_000]
    assert all(example.frames is first[0].frames for example in first)
    assert [example.kind for example in first] == [q.kind for q in ask(make_clip(1_000_000))]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="side"):
        ask(make_clip(0), ["side"])
