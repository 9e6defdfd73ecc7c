import itertools

import pytest

from tokencover.evaluation import Example
from tokencover.evaluation.scoring import normalize, score_contains, score_exact, score_vqa


def example(*answers: str) -> Example:
    return Example("1", (), "what ?", answers, "1")


@pytest.mark.parametrize("text", ["Cat", " cat. ", "cat .", '"CAT!"', "cat\n"])
def test_case_blanks_and_punctuation_do_not_matter(text: str) -> None:
    assert normalize(text) == "cat"
    assert score_exact(text, example("dog", "cat.")) == 1


def test_inner_punctuation_stays() -> None:
    assert normalize("It's  3.5") == "it's 3.5"


def test_a_longer_answer_is_not_exact() -> None:
    assert score_exact("a cat", example("cat")) == 0


@pytest.mark.parametrize(
    ("answer", "right", "score"),
    [
        ("It is a cat, I think", "cat", 1),
        ("a catalogue", "cat", 0),
        ("it costs $5", "$5", 1),
        ("it costs $55", "$5", 0),
        ("C++", "c++", 1),
        ("yes", "?", 0),
        ("", "cat", 0),
    ],
)
def test_contained_as_whole_words(answer: str, right: str, score: float) -> None:
    assert score_contains(answer, example(right)) == score


def test_soft_accuracy_is_the_mean_over_all_who_are_left_out() -> None:
    people = ["cat"] * 3 + ["dog"] * 7
    subsets = itertools.combinations(people, 9)
    slow = [min(1.0, others.count("cat") / 3) for others in subsets]
    assert score_vqa("Cat", example(*people)) == pytest.approx(sum(slow) / 10)
    assert score_vqa("cat", example(*people)) == pytest.approx(0.9)
    assert score_vqa("dog", example(*people)) == 1
    assert score_vqa("bird", example(*people)) == 0
