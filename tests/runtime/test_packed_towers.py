"""Merging in towers that pack pictures of all sizes into one row, against the same by hand."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.runtime.merging_method import MergeNothing, MergePairs
from tests.runtime.slow_packed_tower import merge_slowly
from tests.runtime.test_matrix import built
from tests.runtime.test_prune import fingerprint
from tests.runtime.test_tower import merged_logits, repeated
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tests.zoo.oracle import blocked_forward
from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime.families import family_of

ALL = (
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "qwen3_vl_moe",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen2_5_omni_thinker",
    "qwen3_omni_moe_thinker",
    "cosmos3_omni",
    "cosmos3_edge",
    "glm4v",
    "glm4v_moe",
    "glm46v",
    "glmga",
    "glm_ocr",
    "hyperclovax_vision_v2",
    "paddleocr_vl",
    "ernie4_5_vl_moe",
)
EVERY = [name for name in ALL if name in ZOO]
MAIN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
KINDS = ("two_images", "ragged", "video", "image_and_video")
METHODS = [
    pytest.param(MergePairs(2), id="before"),
    pytest.param(MergePairs(2, (1,), proportional_attention=True), id="before proportional"),
    pytest.param(MergePairs(2, inside_tower_blocks=True), id="inside"),
    pytest.param(MergePairs(2, (0, 1, 2), (), True, True), id="inside proportional"),
]


def expect_logits(entry: ZooEntry, inputs: Inputs, method: MergePairs) -> tuple[Tensor, Tensor]:
    """Logits of the model whose tower merges by hand, and which positions are left."""
    model: Any = built(entry.name)
    with ExitStack() as stack, torch.no_grad():
        for path in family_of(model).towers:
            stack.enter_context(merge_slowly(model.get_submodule(path), method))
        gone = repeated(model, entry, inputs)
        logits = blocked_forward(model, inputs, gone, 0)
    return logits, inputs["attention_mask"].bool() & ~gone


def check_kinds(name: str, method: MergePairs, kinds: tuple[str, ...]) -> None:
    entry = ZOO[name]
    for kind in kinds:
        inputs = entry.inputs(kind)
        expected, left = expect_logits(entry, inputs, method)
        assert bool((inputs["attention_mask"].bool() & ~left).any())
        found = merged_logits(built(name), inputs, method)
        torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MAIN)
def test_merging_equals_the_slow_tower(name: str, method: MergePairs) -> None:
    check_kinds(name, method, KINDS)


@pytest.mark.parametrize("name", [each for each in EVERY if each not in MAIN])
def test_kin_merge_as_the_slow_tower(name: str) -> None:
    kinds = tuple(each for each in ("ragged", "video") if each in ZOO[name].kinds)
    check_kinds(name, MergePairs(2, (0, 1), (), True, True), kinds)
    check_kinds(name, MergePairs(2, (1,)), kinds)
