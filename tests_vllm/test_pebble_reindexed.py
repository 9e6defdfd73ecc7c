"""Pebble with tokens reindexed, one choice for all questions, and a split by coupling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tokencover as tc
from tests_vllm.comparing import (
    Asked,
    Choices,
    answer_in_transformers,
    answer_in_vllm,
    check_same,
    measure_all,
)
from tests_vllm.engines import make_engine
from tokencover.budget import Profile
from tokencover.serving import metrics
from tokencover_models.pebble import PICTURE_CHECKPOINT, load_pebble
from tokencover_models.pebble.data import make_examples

BUDGET = 64
MEGABYTE = 2**20
COUPLINGS = {"low": [0.60 + 0.001 * step for step in range(60)],
             "high": [0.90 + 0.001 * step for step in range(60)]}  # fmt: skip


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    Profile.of("pebble", 0, COUPLINGS).save(path)
    return path


@pytest.fixture(scope="module")
def engine(profile: Path) -> Any:
    settings = {
        "budget": BUDGET,
        "positions": "reindex",
        "split": "coupling",
        "profile": str(profile),
        "vision_cache_mb": 1,
    }
    return make_engine(PICTURE_CHECKPOINT, settings)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return load_pebble()


@pytest.fixture(scope="module")
def prompts() -> list[Asked]:
    examples = list(make_examples("test", 2))
    single = [Asked((each.picture,), write("<image>", each.question)) for each in examples]
    both = (examples[0].picture, examples[-1].picture)
    return [*single[:5], Asked(both, write("<image> <image>", examples[2].question))]


def write(pictures: str, question: str) -> str:
    return f"USER: {pictures} {question} ASSISTANT:"


def test_a_split_by_coupling(engine: Any, pair: Any, prompts: Any, profile: Path) -> None:
    coupling = metrics.get_metrics().coupling
    before = coupling._sum.get()
    method = tc.MoB(BUDGET, tc.CouplingSplit(profile), after=0, per="image", positions="reindex")
    expected, _ = answer_in_transformers(pair, method, prompts)
    check_same(answer_in_vllm(engine, prompts), expected)
    assert coupling._sum.get() > before


def test_the_control_original_positions_differ(engine: Any, pair: Any, prompts: Any) -> None:
    method = tc.MoB(BUDGET, after=0, per="image")
    expected, _ = answer_in_transformers(pair, method, prompts[:5])
    found = answer_in_vllm(engine, prompts[:5], {"method": "mob"})
    assert measure_all(found, expected) > 0.1


def test_a_choice_by_picture_is_found_in_the_caches(
    engine: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = Choices(monkeypatch)
    picture = list(make_examples("test", 4))[-1].picture
    questions = ["is it day ?", "where is the house ?", "how many birds are there ?"]
    asked = [Asked((picture,), write("<image>", each)) for each in questions]
    for each in asked:
        answer_in_vllm(engine, [each], {"method": "farthest"})
    assert len(choices.made) == 1


def test_tower_outputs_stay_within_their_bound(engine: Any, prompts: Any) -> None:
    """An image takes 0.28 MB, so that three are remembered."""
    reused = metrics.get_metrics().reused
    (picture,) = prompts[0].pictures
    turned = [picture.rotate(angle) for angle in (15, 90, 180, 270, 45)]

    def count_reused(question: str, pictures: list[Any]) -> float:
        before = reused._value.get()
        for each in pictures:
            answer_in_vllm(engine, [Asked((each,), write("<image>", question))])
        (used,) = engine.apply_model(lambda model: model._cache.used)
        assert 0.5 * MEGABYTE < used <= MEGABYTE
        found: float = reused._value.get() - before
        return found

    assert count_reused("is it day ?", turned) == 0
    assert count_reused("is there a tree ?", turned[-3:]) == 3
    # Each is forgotten just before it comes again.
    assert count_reused("where is the house ?", turned) == 0
