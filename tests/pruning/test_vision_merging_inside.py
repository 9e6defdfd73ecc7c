"""Merging between the two halves of a block; by value in `test_vision_merging.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.pruning.merging_method import MergeNothing, MergePairs, slow_encoder
from tests.pruning.test_matrix import built
from tests.pruning.test_vision_merging import merged_logits
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tokencover.methods import Method
from tokencover.pruning.prune import prune


def encode(model: Any, pixels: Tensor) -> Any:
    """What the vision encoder of a pruned model gives its encoder, which takes hidden states."""
    seen: list[Any] = []
    handle = model.model.vision_tower.register_forward_hook(lambda *call: seen.append(call[-1]))
    model.model.get_image_features(pixels, output_hidden_states=True)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("encoder", ["siglip", "dinov2"])
@pytest.mark.parametrize("inside", [False, True])
def test_merging_nothing_changes_no_bit(encoder: str, inside: bool) -> None:
    variant, method = VARIANTS[f"llava, {encoder}"], MergeNothing(inside_vision_blocks=inside)
    model = variant.build()
    with torch.no_grad():
        plain = model(**variant.inputs, use_cache=False).logits
    assert torch.equal(merged_logits(model, variant.inputs, method), plain)


def test_merging_inside_blocks_that_accelerate_moves() -> None:
    hooks = pytest.importorskip("accelerate.hooks")
    model: Any = ZOO["llava"].build()
    inputs, method = ZOO["llava"].inputs("ragged"), MergePairs(inside_vision_blocks=True)
    expected = merged_logits(model, inputs, method)
    block, calls = model.model.vision_tower.encoder.layers[0], []

    class Count(hooks.ModelHook):  # type: ignore[name-defined, misc]
        def pre_forward(self, module: Any, *args: Any, **kwargs: Any) -> Any:
            calls.append(module)
            return args, kwargs

    hooks.add_hook_to_module(block, Count())
    assert torch.equal(merged_logits(model, inputs, method), expected)
    assert calls == [block]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("proportional", [False, True])
def test_merging_in_dinov2_equals_the_slow_encoder(inside: bool, proportional: bool) -> None:
    """Its blocks scale what they add, and have attention of their own make."""
    variant = VARIANTS["llava, dinov2"]
    model: Any = variant.build()
    encoder, pixels = model.model.vision_tower, variant.inputs["pixel_values"]
    method = MergePairs(2, (0, 2), (), proportional, inside)
    with torch.no_grad():
        expected = slow_encoder(encoder, method)(pixels)
        with prune(model, method, prompt=torch.zeros(1, 1)):
            found = encode(model, pixels)
    assert expected.hidden_states is not None
    for state, by_hand in zip(found.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(state, by_hand, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        found.last_hidden_state, expected.last_hidden_state, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("method", [tc.ToMe(10), tc.FiCoCoV(10), tc.MustDrop(10)])
def test_published_methods_merge_in_dinov2(method: Method) -> None:
    variant = VARIANTS["llava, dinov2"]
    model: Any = variant.build()
    with (
        torch.no_grad(),
        tc.prune(model, method, prompt=torch.ones_like(variant.inputs["input_ids"])),
    ):
        assert model(**variant.inputs).logits.isfinite().all()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("proportional", [False, True])
def test_every_hidden_state_equals_the_slow_encoder_s(inside: bool, proportional: bool) -> None:
    model: Any = built("llava")
    encoder, pixels = model.model.vision_tower, ZOO["llava"].inputs("two_images")["pixel_values"]
    method = MergePairs(2, (0, 2), (), proportional, inside)
    with torch.no_grad():
        expected = slow_encoder(encoder, method)(pixels).hidden_states
        with prune(model, method, prompt=torch.zeros(1, 1)):
            found = encode(model, pixels)
    assert expected is not None
    for state, by_hand in zip(found.hidden_states, expected, strict=True):
        torch.testing.assert_close(state, by_hand, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.last_hidden_state, expected[-1], atol=1e-5, rtol=1e-5)
