from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import VideoLlavaForConditionalGeneration

import tokencover as tc
from tokencover_models.pebble import CLIP_CHECKPOINT, load_pebble_clips
from tokencover_models.pebble.data import ClipExample, make_clip_examples
from tokencover_models.pebble.model import VIDEO, make_prompt

KINDS = ("read", "when", "animal_then", "half", "empty", "place")


@pytest.fixture(scope="module")
def pebble() -> tuple[Any, Any]:
    return load_pebble_clips()


def answer(pebble: tuple[Any, Any], asked: Sequence[ClipExample]) -> list[str]:
    model, processor = pebble
    texts = [make_prompt(example.question, VIDEO) for example in asked]
    inputs = processor(texts, [example.frames for example in asked], padding=True)
    with torch.inference_mode():
        tokens = model.generate(**inputs)[:, inputs["input_ids"].shape[1] :]
    replies: list[str] = processor.batch_decode(tokens, skip_special_tokens=True)
    return replies


def test_it_is_small_and_has_a_card() -> None:
    assert sum(path.stat().st_size for path in CLIP_CHECKPOINT.iterdir()) < 30e6
    assert (CLIP_CHECKPOINT / "README.md").exists()


def test_it_loads_by_plain_transformers(pebble: tuple[Any, Any]) -> None:
    stock = VideoLlavaForConditionalGeneration.from_pretrained(CLIP_CHECKPOINT)
    for name, weight in pebble[0].named_parameters():
        assert torch.equal(weight, stock.get_parameter(name))


def test_it_answers_well_and_needs_its_tokens(pebble: tuple[Any, Any]) -> None:
    asked = [example for example in make_clip_examples("validation", 2) if example.kind in KINDS]
    truth = [example.answer for example in asked]

    def score(replies: list[str]) -> float:
        return sum(map(str.__eq__, replies, truth)) / len(truth)

    whole = answer(pebble, asked)
    assert score(whole) > 0.85
    model, processor = pebble
    with tc.prune(model, tc.MoB(1160), processor=processor):
        assert answer(pebble, asked) == whole
    with tc.prune(model, tc.get_method("random", budget=77), processor=processor):
        assert score(answer(pebble, asked)) < score(whole) - 0.2
    assert answer(pebble, asked[:3]) == whole[:3]
