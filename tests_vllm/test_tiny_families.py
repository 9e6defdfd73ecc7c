"""The other families, each in a process of its own: ``FAMILY=qwen2_vl pytest ...``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

import tokencover as tc
from tests_vllm.comparing import (
    Asked,
    Choices,
    answer_in_transformers,
    answer_in_vllm,
    measure_difference,
)
from tests_vllm.engines import make_engine
from tests_vllm.tiny_models import MAKERS

FAMILY = os.environ["FAMILY"]
BUDGET = 16
CLOSE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(FAMILY)
    MAKERS[FAMILY](made)
    return made


@pytest.fixture(scope="module")
def pair(folder: Path) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return model, AutoProcessor.from_pretrained(folder)


def draw(seed: int, width: int, height: int) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 255, (height // 8, width // 8, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture(scope="module")
def prompts(pair: Any) -> list[Asked]:
    pictures = [draw(0, 64, 48), draw(1, 40, 72), draw(2, 56, 56)]

    def ask(question: str, *shown: int) -> Asked:
        content = [{"type": "image"}] * len(shown) + [{"type": "text", "text": question}]
        chat = [{"role": "user", "content": content}]
        text = pair[1].apply_chat_template(chat, add_generation_prompt=True)
        return Asked(tuple(pictures[each] for each in shown), text)

    return [
        ask("What is in the picture?", 0),
        ask("Is there a red ball at the left?", 1),
        ask("How many birds fly?", 2),
        ask("Which one is larger?", 0, 1),
        ask("Is it day?", 0),
    ]


@pytest.fixture(scope="module")
def engine(folder: Path) -> Any:
    return make_engine(folder, {"budget": BUDGET, "ceiling": 10_000}, max_num_batched_tokens=40)


def check(engine: Any, pair: Any, method: Any, prompts: list[Asked], /, **asked: Any) -> Any:
    expected, kept = answer_in_transformers(pair, method, prompts)
    found = answer_in_vllm(engine, prompts, asked or None)
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    pairs = zip(found, expected, strict=True)
    assert max(measure_difference(*each) for each in pairs) < CLOSE
    return kept


def test_it_is_what_tc_prune_gives(
    engine: Any, pair: Any, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    choices = Choices(monkeypatch)
    method = tc.MoB(BUDGET, after=0, per="image")
    kept = check(engine, pair, method, prompts)
    single = [each for number, each in enumerate(kept) if number != 3]
    found = [each for _, each in choices.kept]
    assert all(each in found for each in single)
    check(engine, pair, method, prompts)  # from the caches


def test_a_share_of_a_larger_picture(engine: Any, pair: Any, prompts: Any) -> None:
    check(engine, pair, tc.MoB(0.5, after=0, per="image"), prompts[:2], budget=0.5)


def test_merged_tokens(engine: Any, pair: Any, prompts: Any) -> None:
    method = tc.Downsample(BUDGET, positions="original")
    check(engine, pair, method, prompts[:2], method="downsample")


def test_nothing_to_drop(engine: Any, pair: Any, prompts: Any) -> None:
    check(engine, pair, None, prompts[-2:], budget=10_000)
