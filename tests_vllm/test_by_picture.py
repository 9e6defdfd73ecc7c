"""One choice for all questions about an image."""

from __future__ import annotations

from typing import Any

import pytest

import tokencover as tc
from tests_vllm.comparing import (
    Asked,
    Choices,
    answer_in_transformers,
    answer_in_vllm,
    check_same,
)
from tests_vllm.engines import make_engine
from tokencover.methods import Method
from tokencover_models.pebble import PICTURE_CHECKPOINT, load_pebble
from tokencover_models.pebble.data import make_examples

BUDGET = 64


@pytest.fixture(scope="module")
def engine() -> Any:
    settings = {"budget": BUDGET, "choose_by": "image", "ceiling": 1.0}
    return make_engine(PICTURE_CHECKPOINT, settings)


@pytest.fixture(scope="module")
def prompts() -> list[Asked]:
    picture = next(iter(make_examples("test", 1))).picture
    questions = ("is it day ?", "where is the house ?", "how many birds are there ?")
    return [ask(picture, each) for each in questions]


def ask(picture: Any, question: str) -> Asked:
    return Asked((picture,), f"USER: <image> {question} ASSISTANT:")


@pytest.mark.parametrize(
    ("named", "method"),
    [
        (None, tc.FarthestOnly(BUDGET, after=0)),
        ("nearest", tc.FarthestOnly(BUDGET, after=0)),
        ("random:seed=3", tc.Random(BUDGET, after=0, seed=3)),
    ],
)
def test_one_choice_for_all_questions(
    engine: Any, prompts: Any, named: Any, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MoB and what is nearest to the words keep farthest points if there are none."""
    engine.reset_prefix_cache()
    choices = Choices(monkeypatch)
    expected, kept = answer_in_transformers(load_pebble(), method, prompts)
    for each, right in zip(prompts, expected, strict=True):
        found = answer_in_vllm(engine, [each], None if named is None else {"method": named})
        check_same(found, [right])
    assert [each.kept for each in choices.made] == [kept[0]]
