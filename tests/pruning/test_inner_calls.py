"""A selection belongs to its prompt: calls that callbacks of `generate` make get their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.pruning.test_matrix import NEVER, built, generate
from tests.zoo import ZOO
from tokencover.methods import Method

METHODS: list[Method] = [tc.FastV(7, after=1), tc.PyramidDrop(7), tc.MoB(7)]
PAIRS = [(name, each) for name in ("llava", "qwen2_vl") for each in METHODS]
PAIRS.append(("llama4", tc.MoB(7)))  # the one family here whose multimodal model is the whole model


class Caller:
    """Calls the model on other prompts at every step, without a cache."""

    def __init__(self, model: Any, prompts: list[dict[str, Any]]) -> None:
        self.model, self.prompts, self.found = model, prompts, list[list[Tensor]]()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Any:
        self.found.append([self.model(**each, use_cache=False).logits for each in self.prompts])
        return scores


class Stopper(Caller):
    """The same as a stopping criterion."""

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Any:
        super().__call__(input_ids, scores)
        return torch.zeros(len(input_ids), dtype=torch.bool)


@pytest.mark.filterwarnings("ignore:.*positions='reindex'")
@pytest.mark.parametrize("role", [Caller, Stopper])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_other_prompts_inside_generate(
    name: str, method: Method, cached: bool, role: type[Caller]
) -> None:
    model, entry = built(name), ZOO[name]
    outer = entry.inputs("single")
    # Another image, another text of the same length, and the outer prompt itself.
    recolored = {k: -v if v.is_floating_point() else v for k, v in outer.items()}
    reworded = {**outer, "input_ids": outer["input_ids"].clone()}
    last = entry.user_words(outer)[0].nonzero()[-1]
    reworded["input_ids"][0, last] += 1
    prompts = [recolored, reworded, outer]
    mask = entry.user_words(outer)
    with torch.no_grad(), tc.prune(model, method, prompt=mask):
        expected = [model(**each, use_cache=False).logits for each in prompts]
        plain = generate(model, outer, max_new_tokens=4, eos_token_id=NEVER, use_cache=cached)
    caller = role(model, prompts)
    where = "logits_processor" if role is Caller else "stopping_criteria"
    options: dict[str, Any] = {where: [caller]}
    with torch.no_grad(), tc.prune(model, method, prompt=mask):
        words = generate(
            model, outer, max_new_tokens=4, eos_token_id=NEVER, use_cache=cached, **options
        )
    assert len(caller.found) == 4
    for step in caller.found:
        for found, value in zip(step, expected, strict=True):
            torch.testing.assert_close(found, value, atol=1e-5, rtol=0)
    assert torch.equal(words, plain)


def test_an_inner_prompt_of_another_length() -> None:
    model, entry, method = built("llava"), ZOO["llava"], tc.FastV(7, after=1)
    outer, inner = entry.inputs("single"), entry.inputs("two_images")
    with torch.no_grad(), tc.prune(model, method):
        expected = model(**inner, use_cache=False).logits
        caller = Caller(model, [inner])
        generate(
            model, outer, max_new_tokens=3, eos_token_id=NEVER, use_cache=False,
            logits_processor=[caller],
        )  # fmt: skip
    for (found,) in caller.found:
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
