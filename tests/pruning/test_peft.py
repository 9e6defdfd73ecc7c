"""LoRA adapters of PEFT itself: around a pruned model, and inside it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from torch.nn.functional import cross_entropy

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_companions import GREEDY
from tests.pruning.test_matrix import BUDGET, generate
from tests.pruning.test_prune import fingerprint
from tests.zoo import ZOO
from tests.zoo.entry import Inputs
from tests.zoo.oracle import blocked_forward, recompute_greedy

NAMES = ("llava", "qwen2_vl")
METHOD = KeepRandom(BUDGET, (1,))


class Adapted:
    """A model with adapters that change it, a batch for it, and what the method drops of that."""

    def __init__(self, name: str, dtype: torch.dtype = torch.float32, task: str | None = None):
        entry = ZOO[name]
        self.model: Any = entry.build(dtype=dtype)
        settings = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type=task)
        self.wrapper: Any = get_peft_model(self.model, settings)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for part, parameter in self.wrapper.named_parameters():
                if "lora_" in part:
                    noise = torch.randn(parameter.shape, generator=generator)
                    parameter.copy_(0.5 * noise)
        self.inputs: Inputs = entry.inputs("ragged")
        self.prompt = entry.user_words(self.inputs)
        self.dropped = dropped_by(METHOD, self.inputs, entry.visual(self.inputs))[1]

    def prune(self, model: Any, method: Any = METHOD) -> Any:
        return tc.prune(model, method, prompt=self.prompt)

    def expect(self, model: Any = None) -> Tensor:
        """The last logits of the oracle, which never saw PEFT's wrapper."""
        return blocked_forward(model or self.model, self.inputs, self.dropped, 1)[:, -1]


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("task", [None, "CAUSAL_LM"])
@pytest.mark.parametrize("given", ["wrapper", "model"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_and_words(name: str, given: str, task: str | None) -> None:
    case = Adapted(name, task=task)
    with torch.no_grad():
        case.wrapper(**case.inputs)
        before = fingerprint(case.model)
        with case.prune(getattr(case, given)) as run:
            found = case.wrapper(**case.inputs).logits[:, -1]
            inside = case.model(**case.inputs).logits[:, -1]
            words = generate(case.wrapper, case.inputs, **GREEDY)
    assert isinstance(case.wrapper, PeftModel)
    assert fingerprint(case.model) == before
    assert [len(trace.kept) for trace in run.trace] == [BUDGET] * 3
    close(found, case.expect())
    assert torch.equal(inside, found)
    start = case.inputs["input_ids"].shape[1]
    assert torch.equal(
        words[:, start:], recompute_greedy(case.model, case.inputs, 4, case.dropped, 1)
    )
    assert (case.expect(ZOO[name].build()) - found).abs().max() > 1e-3  # the adapters do something


@pytest.mark.parametrize("name", NAMES)
def test_adapters_are_switched_off_and_merged_inside_the_with(name: str) -> None:
    case = Adapted(name)
    expected = case.expect()
    with torch.no_grad(), case.prune(case.wrapper):
        with case.wrapper.disable_adapter():
            off = case.wrapper(**case.inputs).logits[:, -1]
        close(case.wrapper(**case.inputs).logits[:, -1], expected)
        merged = case.wrapper.merge_and_unload()
        assert merged is case.model
        found = merged(**case.inputs).logits[:, -1]
    close(off, case.expect(ZOO[name].build()))
    # Merging rounds the weights; how much depends on the CPU (1.003e-4 was seen).
    torch.testing.assert_close(found, expected, atol=3e-4, rtol=0)
    with torch.no_grad():
        plain = merged(**case.inputs).logits[:, -1]
    assert (plain - found).abs().max() > 1e-3  # nothing is pruned any more


@pytest.mark.parametrize("method", [tc.FastV(7, after=1), tc.DART(7), tc.MoB(7)])
def test_methods_that_read_blocks_see_the_adapters(method: Any) -> None:
    case = Adapted("llava")
    with case.prune(case.wrapper, method) as run:
        words = generate(case.wrapper, case.inputs, **GREEDY)
    kept = [trace.kept for trace in run.trace]
    merged = case.wrapper.merge_and_unload()
    with case.prune(merged, method) as run:
        assert torch.equal(generate(merged, case.inputs, **GREEDY), words)
    assert all(map(torch.equal, kept, [trace.kept for trace in run.trace]))


@pytest.mark.parametrize("given", ["wrapper", "model"])
@pytest.mark.parametrize("name", NAMES)
def test_one_step_of_training(name: str, given: str) -> None:
    """Gradients are those of the pruned loss, measured along one direction."""
    case = Adapted(name, torch.float64)
    inputs = {
        part: each.double() if each.is_floating_point() else each
        for part, each in case.inputs.items()
    }
    hidden = ZOO[name].visual(inputs) | ~inputs["attention_mask"].bool()
    labels = inputs["input_ids"].masked_fill(hidden, -100)
    trained = [each for each in case.wrapper.parameters() if each.requires_grad]
    generator = torch.Generator().manual_seed(1)
    way = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in trained]

    def loss() -> Tensor:
        """As the model computes it, but with all bits."""
        logits = case.wrapper(**inputs, labels=labels).logits[:, :-1]
        return cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())

    def measure(by: float) -> float:
        """The loss after a move in that direction and back again."""
        with torch.no_grad():
            for each, direction in zip(trained, way, strict=True):
                each.add_(by * direction)
            found = float(loss())
            for each, direction in zip(trained, way, strict=True):
                each.sub_(by * direction)
        return found

    with case.prune(getattr(case, given)):
        case.wrapper.train()
        first = loss()
        first.backward()
        slope = sum(
            float((each.grad * direction).sum())
            for each, direction in zip(trained, way, strict=True)
            if each.grad is not None  # the last block of LLaVA's vision encoder is not used
        )
        step = 1e-5
        measured = (measure(step) - measure(-step)) / (2 * step)
        assert abs(slope) > 0.1
        assert abs(measured - slope) < 0.02 * abs(slope)
        torch.optim.SGD(trained, lr=1e-5).step()
        assert measure(0.0) < float(first.detach())
    names = [part for part, each in case.wrapper.named_parameters() if each.requires_grad]
    assert all("lora_" in part for part in names)
