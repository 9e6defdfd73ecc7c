"""The prompt mask of `tc.make_inputs`, against the prompt tokens that are located without it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from PIL import Image

import tokencover as tc
from tests.pruning.test_words import TEXTS
from tests.pruning.tokenizers_for_words import OTHER_SHAPES, SHAPES, pad, tokenizer_for, words_for
from tokencover.errors import InputError
from tokencover.pruning import PromptLocator
from tokencover.pruning.prompt_inputs import PromptInputs

IMAGE = Image.linear_gradient("L").resize((336, 336)).convert("RGB")
AMBIGUOUS = {"closing": "ASSISTANT", "both": "USER: ASSISTANT:", "twice": "red red"}


class Processor:
    """Writes chats with a family's template, and encodes them as its processor would."""

    image_processor = True

    def __init__(self, family: str, kind: str, side: str) -> None:
        self.shape = {**SHAPES, **OTHER_SHAPES}[family]
        self.tokenizer, self.side = tokenizer_for(family, kind), side

    def apply_chat_template(self, chat: Any, *, add_generation_prompt: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=add_generation_prompt
        )
        return text

    def __call__(self, *, text: list[str], images: Any, **settings: Any) -> dict[str, Any]:
        texts = [self.shape.expand(each) for each in text]
        ids, self.visual = pad(self.tokenizer, texts, self.shape.image, self.side)
        return {"input_ids": ids}


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("kind", ["bytes", "llama", "unigram"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_prompt_mask_equals_located_tokens(family: str, kind: str, side: str) -> None:
    processor = Processor(family, kind, side)
    prompts = [([IMAGE], text) for text in (TEXTS | AMBIGUOUS).values()]
    inputs = tc.make_inputs(processor, prompts)
    expected = words_for(family, kind).mask(inputs["input_ids"], processor.visual)
    assert torch.equal(inputs.prompt_mask, expected)
    assert list(inputs) == ["input_ids"]


def test_prompt_mask_follows_the_inputs() -> None:
    model, processor = tc.load_pebble()
    questions = ("what is the most common color ?", "which color is most common ?")
    inputs = tc.make_inputs(processor, [([IMAGE], question) for question in questions])
    mask = inputs.prompt_mask.clone()
    visual = inputs["input_ids"] == model.config.image_token_id
    assert torch.equal(mask, PromptLocator(processor).mask(inputs["input_ids"], visual))
    moved = inputs.to(model.device, torch.float64)
    assert moved["pixel_values"].dtype == torch.float64
    for each in (
        moved,
        copy.copy(inputs),
        copy.deepcopy(inputs),
        pickle.loads(pickle.dumps(inputs)),
    ):
        assert torch.equal(each.prompt_mask, mask)
    assert inputs.to("meta").prompt_mask.device.type == "meta"


def test_prompt_mask_gives_the_trace_of_located_tokens() -> None:
    model, processor = tc.load_pebble()
    inputs = tc.make_inputs(processor, [([IMAGE], "what is the most common color ?")])
    traces = []
    for prompt in (None, inputs.prompt_mask):
        with torch.no_grad(), tc.prune(model, tc.MoB(64), prompt=prompt) as run:
            model.generate(**inputs, max_new_tokens=2, do_sample=False)
        traces.append({**run.trace[0].to_dict(), "seconds": 0})
    assert traces[0] == traces[1]


def test_inputs_without_questions_have_no_prompt_mask() -> None:
    with pytest.raises(InputError, match=r"omit prompt="):
        _ = PromptInputs({"input_ids": torch.zeros(1, 3)}).prompt_mask
