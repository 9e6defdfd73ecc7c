"""A model over two devices, as device_map="auto" lays it out, equals the model on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, add_hook_to_module, remove_hook_from_module
from torch import nn

import tokencover as tc
from tests.pretend_device import PretendDevice, PretendTensor
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tests.zoo.oracle import base_model, decoder_blocks, text_model
from tests_parallel.two_ranks import NEVER, STEPS, list_cases, observe_second_turn
from tokencover.methods import METHODS

FAMILIES = ("llava", "qwen2_5_vl", "gemma3")
CASES = [
    pytest.param(name, case, changes, id=f"{name}-{case.id}")
    for name in FAMILIES
    for case, changes in list_cases(name)
]
IN_ENCODER = [
    pytest.param(name, case, changes, id=f"{name}-{case.id}")
    for name in FAMILIES
    for case, changes in list_cases(name)
    if {"encoder", "tower"} & set(METHODS[case.method].card.needs)
]
"""Methods that read or merge in the vision encoder."""
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}


def list_modules(model: Any) -> list[nn.Module]:
    """What a device map names: vision encoder, projector, embeddings, layers, norm, head."""
    base, decoder = base_model(model), text_model(model)
    vision = [each for each in base.children() if each is not decoder]
    rest = [each for each in decoder.children() if not isinstance(each, nn.ModuleList)]
    return [*vision, *rest, *decoder_blocks(model), model.lm_head]


@contextmanager
def laid_out(model: Any, device: PretendDevice, chosen: list[nn.Module]) -> Iterator[None]:
    """Modules on the pretend device, the rest on the CPU, as accelerate dispatches a model.

    Its hooks move what a module gets inside the module's forward, after forward pre-hooks have run,
    and take the output of the whole model back to the device of the inputs.
    """
    modules = list_modules(model)
    for module in modules:
        place = "cpu"
        if any(module is each for each in chosen):
            device.adopt(module)
            place = "pretend:0"
        add_hook_to_module(module, AlignDevicesHook(place, skip_keys=["past_key_values"]))
    add_hook_to_module(model, AlignDevicesHook(io_same_device=True))
    try:
        yield
    finally:
        for module in [model, *modules]:
            remove_hook_from_module(module)


def observe(name: str, method: tc.Method, put: Callable[[Any], Any] = dict) -> dict[str, Any]:
    """Logits, traces and words of a batch, on the CPU."""
    model: Any = built(name)
    given = ZOO[name].inputs("ragged")
    inputs, words = put(given), put({"": ZOO[name].user_words(given)})[""]
    with torch.no_grad(), tc.prune(model, method, prompt=words) as run:
        logits = model(**inputs, use_cache=False).logits
        traces = list(run.trace)
        found = model.generate(
            **inputs, max_new_tokens=STEPS, do_sample=False, eos_token_id=NEVER
        )  # fmt: skip
    kept = [_to_cpu(trace.kept).tolist() for trace in traces]
    layers = [trace.tokens_per_layer for trace in traces]
    return {"logits": _to_cpu(logits), "words": _to_cpu(found), "kept": kept, "layers": layers}


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.inner if isinstance(tensor, PretendTensor) else tensor


@cache
def on_one_device(name: str, method: tc.Method) -> dict[str, Any]:
    return observe(name, method)


def assert_same_on_two_devices(
    name: str, method: tc.Method, chosen: list[nn.Module], inputs_too: bool = False
) -> None:
    expected, model = dict(on_one_device(name, method)), built(name)
    with PretendDevice() as device, laid_out(model, device, chosen):
        found = observe(name, method, device.put if inputs_too else dict)
    torch.testing.assert_close(found.pop("logits"), expected.pop("logits"), **CLOSE)
    assert torch.equal(found.pop("words"), expected.pop("words"))
    assert found == expected


def without(model: Any, left_out: Sequence[nn.Module]) -> list[nn.Module]:
    return [each for each in list_modules(model) if all(each is not other for other in left_out)]


@pytest.mark.parametrize(("name", "case", "changes"), CASES)
def test_later_layers_on_another_device(name: str, case: Any, changes: dict[str, Any]) -> None:
    layers = list(decoder_blocks(built(name)))
    for cut in range(len(layers)) if name == "llava" else (2,):
        assert_same_on_two_devices(name, case.make(**changes), layers[cut:])


@pytest.mark.parametrize(("name", "case", "changes"), CASES)
def test_earlier_layers_and_inputs_on_another_device(
    name: str, case: Any, changes: dict[str, Any]
) -> None:
    model = built(name)
    earlier = without(model, decoder_blocks(model)[2:])
    assert_same_on_two_devices(name, case.make(**changes), earlier, inputs_too=True)


@pytest.mark.filterwarnings("ignore:You are calling .generate")  # it compares one weight's device
@pytest.mark.parametrize("inputs_too", [False, True])
@pytest.mark.parametrize(("name", "case", "changes"), IN_ENCODER)
def test_vision_encoder_on_another_device(
    name: str, case: Any, changes: dict[str, Any], inputs_too: bool
) -> None:
    """Than the decoder; and than the decoder and the inputs."""
    model = built(name)
    vision = [each for each in base_model(model).children() if each is not text_model(model)]
    chosen = without(model, vision) if inputs_too else vision
    assert_same_on_two_devices(name, case.make(**changes), chosen, inputs_too)


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_norm_and_head_on_another_device(name: str) -> None:
    model: Any = built(name)
    for chosen in (
        [model.get_input_embeddings()],
        [model.lm_head, text_model(model).norm],
    ):
        for method in (tc.MoB(7), tc.FastV(7), tc.DART(7)):
            assert_same_on_two_devices(name, method, chosen)


def test_a_later_turn_over_a_cache_on_two_devices() -> None:
    model = built("llava")
    expected = observe_second_turn(model, ZOO["llava"])
    with PretendDevice() as device, laid_out(model, device, list(decoder_blocks(model))[2:]):
        found = observe_second_turn(model, ZOO["llava"])
    torch.testing.assert_close(_to_cpu(found["logits"]), expected["logits"], **CLOSE)
    assert [_to_cpu(each).tolist() for each in found["kept"]] == [
        each.tolist() for each in expected["kept"]
    ]
