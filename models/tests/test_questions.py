from collections import Counter, defaultdict

import pytest
from slow_scene_answers import answer_slowly

from tokencover.errors import InputError
from tokencover_models.pebble.data import (
    COARSE,
    FINE,
    SCENE_QUESTIONS,
    get_training_seed,
    list_seeds,
    make_examples,
    make_scene,
)
from tokencover_models.pebble.data.splits import FIRST_SEED, SPLIT_SCENES
from tokencover_models.pebble.vocabulary import PICTURE_WORD_IDS

KINDS, FAMILIES, ask = SCENE_QUESTIONS.kinds, SCENE_QUESTIONS.families, SCENE_QUESTIONS.ask
CHOICES = {
    **{"exist": 2, "color": 8, "shape": 8, "read": 10, "where": 9},
    **{"animal_color": 8, "animal_name": 10},
    **{"common_color": 8, "common_shape": 8, "more": 16, "side": 2, "level": 2},
    **{"empty": 9, "place": 6},
}


def test_answers_agree_with_a_second_reading() -> None:
    for seed in range(150):
        scene = make_scene(seed)
        for turn in range(2):
            for question in ask(scene, turn=turn):
                assert question.answer == answer_slowly(scene, question.kind, question.text), (
                    question
                )


def test_every_word_is_in_the_vocabulary() -> None:
    for seed in range(100):
        for question in ask(make_scene(seed)):
            assert {*question.text.split(), question.answer} <= set(PICTURE_WORD_IDS)


def test_no_answer_is_much_more_frequent_than_chance() -> None:
    tallies: dict[str, Counter[str]] = defaultdict(Counter)
    for seed in list_seeds("test"):
        for question in ask(make_scene(seed)):
            tallies[question.kind][question.answer] += 1
    for kind, choices in CHOICES.items():
        assert len(tallies[kind]) == choices
        # Four standard deviations of the most frequent answer, with as many draws.
        chance, asked = 1 / choices, tallies[kind].total()
        slack = 4 * (chance * (1 - chance) / asked) ** 0.5
        assert max(tallies[kind].values()) / asked < chance + slack, kind


def test_the_test_split_is_large_enough() -> None:
    counts = Counter(
        question.kind for seed in list_seeds("test") for question in ask(make_scene(seed))
    )
    assert len(list_seeds("test")) >= 300
    assert counts.total() >= 3000
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 150


def test_there_are_enough_kinds_in_both_families() -> None:
    assert len(KINDS) >= 10
    assert min(Counter(FAMILIES.values())[family] for family in (FINE, COARSE)) >= 5


def test_each_kind_has_several_phrasings() -> None:
    openings: dict[str, set[str]] = defaultdict(set)
    for seed in range(60):
        for question in ask(make_scene(seed)):
            openings[question.kind].add(question.text.split()[0])
    assert all(len(words) >= 2 for words in openings.values())


def test_splits_share_no_scene() -> None:
    test, validation = set(list_seeds("test")), set(list_seeds("validation"))
    train = {get_training_seed(run, stage, 0) for run in range(3) for stage in range(6)}
    assert not test & validation
    assert max(test | validation) < FIRST_SEED["train"] <= min(train)
    assert SPLIT_SCENES["test"] == len(test)
    assert len(train) == 18


@pytest.mark.parametrize("arguments", [("holdout", 3), ("train", None), ("test", 0)])
def test_wrong_splits_are_refused(arguments: tuple[str, int | None]) -> None:
    with pytest.raises(InputError):
        list_seeds(*arguments)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="count"):
        ask(make_scene(0), ["count"])


def test_examples_carry_all_that_is_needed() -> None:
    found = list(make_examples("validation", scenes=2))
    assert len(found) == 2 * len(KINDS)
    assert {example.scene_id for example in found} == {1_000_000, 1_000_001}
    assert all(example.family == FAMILIES[example.kind] for example in found)
    assert len({id(example.picture) for example in found}) == 2
