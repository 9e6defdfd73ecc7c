"""Coming, going, and refusing."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import ALL, BUDGET, built, generate
from tests.zoo import ZOO
from tests.zoo.entry import ZooEntry
from tokencover.methods import Choice, View

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_forward_hooks_with_kwargs",
         "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called")  # fmt: skip


def fingerprint(model: PreTrainedModel) -> dict[str, Any]:
    """Everything a module carries, except what transformers itself learns during a forward."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key in HOOKS:
                found[f"{name}.{key}"] = list(value)
            elif key not in ("_parameters", "_buffers", "_modules", "rope_deltas"):
                found[f"{name}.{key}"] = id(value)
    for name, value in model.state_dict().items():
        found[name] = (value.data_ptr(), value._version)
    return found


@pytest.mark.parametrize("entry", ALL)
def test_nothing_is_left_behind(entry: ZooEntry) -> None:
    model = built(entry.name)
    inputs = entry.inputs("ragged")
    with torch.no_grad():
        plain = model(**inputs).logits
        before = fingerprint(model)
        with tc.prune(model, KeepRandom(BUDGET), prompt=entry.user_words(inputs)):
            assert fingerprint(model) != before
            model(**inputs)
            generate(model, inputs, max_new_tokens=2)
        assert fingerprint(model) == before
        assert torch.equal(model(**inputs).logits, plain)


def test_nothing_is_left_behind_after_an_error() -> None:
    entry = ZOO["llava"]
    model = built("llava")
    inputs = entry.inputs("single")
    with torch.no_grad():
        plain = model(**inputs).logits
    before = fingerprint(model)

    class Stumbles(KeepRandom):
        def choose(self, view: View) -> Choice:
            raise RuntimeError("stumbled")

    with pytest.raises(RuntimeError, match="stumbled"):  # noqa: SIM117
        with tc.prune(model, Stumbles(BUDGET), prompt=entry.user_words(inputs)):
            model(**inputs)
    assert fingerprint(model) == before
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, plain)


def test_an_error_inside_one_pass_does_not_spoil_the_next() -> None:
    entry = ZOO["llava"]
    model = built("llava")
    inputs = entry.inputs("single")
    text = entry.inputs("text_only")
    calls = []

    class StumblesOnce(KeepRandom):
        def choose(self, view: View) -> Choice:
            calls.append(1)
            if len(calls) == 1:
                raise RuntimeError("stumbled")
            return super().choose(view)

    with torch.no_grad():
        plain = model(**text).logits
        with tc.prune(model, StumblesOnce(BUDGET), prompt=entry.user_words(inputs)):
            with pytest.raises(RuntimeError, match="stumbled"):
                model(**inputs)
            assert torch.equal(model(**text).logits, plain)
            model(**inputs)
    assert len(calls) == 2


def test_the_handle_works_without_with() -> None:
    model = built("llava")
    before = fingerprint(model)
    handle = tc.prune(model, KeepRandom(3))
    assert "KeepRandom" in repr(handle)
    handle.remove()
    handle.remove()
    assert fingerprint(model) == before


def test_pruning_twice_is_refused() -> None:
    model = built("llava")
    with tc.prune(model, KeepRandom(3)), pytest.raises(tc.InputError, match="already pruned"):
        tc.prune(model, KeepRandom(4))
    tc.prune(model, KeepRandom(4)).remove()


def test_a_forgotten_model_can_be_collected() -> None:
    model = ZOO["llava"].build()
    tc.prune(model, KeepRandom(3)).remove()
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("wrong", [64, None, tc.MoB])
def test_what_is_no_method_is_refused(wrong: Any) -> None:
    with pytest.raises(tc.InputError, match="method must be"):
        tc.prune(built("llava"), wrong)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(tc.TokenCoverError, match="from_pretrained"):
        tc.prune(nn.Linear(2, 2), tc.MoB(budget=4))


@pytest.mark.parametrize("stages", [(5,), (2, 1), (1, 1), (-1,)])
def test_impossible_places_are_refused(stages: tuple[int, ...]) -> None:
    with pytest.raises(tc.InputError, match="between 0 and 4"):
        tc.prune(built("llava"), KeepRandom(3, stages))


def test_embeddings_instead_of_ids_are_refused() -> None:
    model = built("llava")
    with tc.prune(model, KeepRandom(3)), pytest.raises(tc.InputError, match="input_ids"):
        model(inputs_embeds=torch.zeros(1, 4, 32))


def test_a_prompt_mask_of_the_wrong_shape_is_refused() -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("single")
    wrong = torch.ones(1, 300, dtype=torch.bool)
    with (
        tc.prune(built("llava"), tc.MoB(3), prompt=wrong),
        pytest.raises(tc.InputError, match=r"mask of shape \(1, 300\)"),
    ):
        built("llava")(**inputs)


@pytest.mark.parametrize("kept", [[torch.tensor([99])], [torch.tensor([-1])], []])
def test_a_method_that_chooses_nonsense_is_refused(kept: list[torch.Tensor]) -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("single")

    class Nonsense(KeepRandom):
        def choose(self, view: View) -> Choice:
            return Choice(kept)

    with (
        tc.prune(built("llava"), Nonsense(3), prompt=entry.user_words(inputs)),
        pytest.raises(tc.InputError, match="the method"),
    ):
        built("llava")(**inputs)


class Slow(KeepRandom):
    """Takes its time at every place."""

    def choose(self, view: View) -> Choice:
        time.sleep(0.02)
        return super().choose(view)


def test_the_time_of_all_places_is_added_up() -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("single", "left")
    method = Slow(BUDGET, (1, 2, 3))
    with torch.no_grad(), tc.prune(built("llava"), method, prompt=entry.user_words(inputs)) as run:
        built("llava")(**inputs)
    assert run.trace[0].seconds >= 0.06
