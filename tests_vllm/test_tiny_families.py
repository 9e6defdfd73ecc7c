"""The other families, each in a separate process: ``FAMILY=qwen2_vl pytest ...``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tokencover as tc
from tests_vllm.comparing import (
    Asked,
    Choices,
    Chosen,
    answer_in_transformers,
    answer_in_vllm,
    check_same,
)
from tests_vllm.engines import make_engine
from tests_vllm.tiny_models import MAKERS, load_pair
from tests_vllm.tiny_prompts import write_prompts

FAMILY = os.environ["FAMILY"]
BUDGET = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(FAMILY)
    MAKERS[FAMILY](made)
    return made


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Any, Any]:
    return load_pair(folder)


@pytest.fixture(scope="module")
def prompts(pair: Any) -> list[Asked]:
    return write_prompts(pair[1])


@pytest.fixture(scope="module")
def engine(folder: Path) -> Any:
    return make_engine(folder, {"budget": BUDGET, "ceiling": 10_000}, max_num_batched_tokens=40)


def check(engine: Any, pair: Any, method: Any, prompts: list[Asked], /, **asked: Any) -> Any:
    expected, kept = answer_in_transformers(pair, method, prompts)
    found = answer_in_vllm(engine, prompts, asked or None)
    check_same(found, expected)
    return kept


def were_made(kept: list[int], pictures: int, made: list[Chosen]) -> bool:
    """Whether the engine made these choices, one after the other, for so many images."""
    if pictures == 0:
        return not kept
    return any(
        kept[: len(each.kept)] == each.kept
        and were_made([place - each.tokens for place in kept[len(each.kept) :]], pictures - 1, made)
        for each in made
    )


def test_it_is_what_tc_prune_gives(
    engine: Any, pair: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = Choices(monkeypatch)
    method = tc.MoB(BUDGET, after=0, per="image")
    kept = check(engine, pair, method, prompts)
    for asked, whole in zip(prompts, kept, strict=True):
        assert were_made(whole, len(asked.pictures), choices.made)
    check(engine, pair, method, prompts)  # from the caches


def test_a_share_of_a_larger_picture(engine: Any, pair: Any, prompts: Any) -> None:
    check(engine, pair, tc.MoB(0.5, after=0, per="image"), prompts[:2], budget=0.5)


def test_merged_tokens(engine: Any, pair: Any, prompts: Any) -> None:
    method = tc.Downsample(BUDGET, positions="original")
    check(engine, pair, method, prompts[:2], method="downsample")


def test_nothing_to_drop(engine: Any, pair: Any, prompts: Any) -> None:
    check(engine, pair, None, prompts[-2:], budget=10_000)
