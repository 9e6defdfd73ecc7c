"""Merging in vision encoders that pack images into one row, against the same by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.pruning.merging_method import MergeNothing, MergePairs
from tests.pruning.slow_packed_encoder import MergeByAttention, merge_slowly
from tests.pruning.test_matrix import built, generate
from tests.pruning.test_prune import fingerprint
from tests.pruning.test_vision_merging import merged_logits, repeated
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tests.zoo.oracle import blocked_forward
from tokencover.errors import InputError
from tokencover.families import family_of

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
KINDS = ("ragged", "image_and_video")
METHODS = [
    pytest.param(MergePairs(2), id="before"),
    pytest.param(MergePairs(2, (1,), proportional_attention=True), id="before proportional"),
    pytest.param(MergePairs(2, inside_vision_blocks=True), id="inside"),
    pytest.param(MergePairs(2, (0, 1, 2), (), True, True), id="inside proportional"),
    pytest.param(MergeByAttention(1, (1, 2)), id="by attention"),
    pytest.param(MergeByAttention(1, (0, 1, 2), (), True, True), id="by attention inside"),
]


def expect_logits(entry: ZooEntry, inputs: Inputs, method: MergePairs) -> tuple[Tensor, Tensor]:
    """Logits of the model whose vision encoder merges by hand, and which positions are left."""
    model: Any = built(entry.name)
    with ExitStack() as stack, torch.no_grad():
        for path in family_of(model).vision_encoders:
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
def test_merging_equals_the_slow_encoder(name: str, method: MergePairs) -> None:
    check_kinds(name, method, KINDS)


@pytest.mark.parametrize("name", [each for each in EVERY if each not in MAIN])
def test_kin_merge_as_the_slow_encoder(name: str) -> None:
    check_kinds(name, MergePairs(2, (0, 1), (), True, True), ("ragged",))
    videos = [each for each in ("image_and_video", "video") if each in ZOO[name].kinds]
    check_kinds(name, MergePairs(2, (1,)), tuple(videos[:1]))


@pytest.mark.parametrize("name", EVERY)
def test_merging_nothing_changes_no_bit(name: str) -> None:
    model: Any = built(name)
    inputs = ZOO[name].inputs("ragged")
    with torch.no_grad():
        before, plain = fingerprint(model), model(**inputs, use_cache=False).logits
        for inside in (False, True):
            method = MergeNothing(proportional_attention=True, inside_vision_blocks=inside)
            assert torch.equal(merged_logits(model, inputs, method), plain)
        assert fingerprint(model) == before


@pytest.mark.parametrize("name", MAIN)
def test_a_batch_equals_the_single_runs(name: str) -> None:
    entry, method = ZOO[name], MergePairs(2, (0, 1), (), True, True)
    for kind in KINDS:
        inputs = entry.inputs(kind)
        together, real = merged_logits(built(name), inputs, method), inputs["attention_mask"].bool()
        for row, sample in enumerate(entry.samples(kind)):
            alone = merged_logits(built(name), entry.collate([sample]), method)[0]
            torch.testing.assert_close(together[row, real[row]], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", [tc.ToMe, tc.FiCoCoV])
@pytest.mark.parametrize("name", MAIN)
def test_published_methods_keep_their_budget(name: str, method: type[tc.ToMe]) -> None:
    """Each image keeps as many as were asked for, a video as many for all its frames."""
    model: Any = built(name)
    entry, inputs = ZOO[name], ZOO[name].inputs("image_and_video")
    words, before = entry.user_words(inputs), fingerprint(model)
    with torch.no_grad():
        plain = model(**inputs).logits
        with tc.prune(model, method(4, positions="original"), prompt=words) as run:
            assert model(**inputs).logits.isfinite().all()
        assert [len(trace.kept) for trace in run.trace] == [4, 8]
        with tc.prune(model, method(1.0, positions="original"), prompt=words):
            assert torch.equal(model(**inputs).logits, plain)
    assert fingerprint(model) == before


def test_words_are_the_same_with_and_without_a_cache() -> None:
    entry, inputs = ZOO["qwen3_vl"], ZOO["qwen3_vl"].inputs("ragged")
    model, words = built("qwen3_vl"), entry.user_words(inputs)
    with tc.prune(model, tc.ToMe(0.5, positions="original"), prompt=words):
        found = [
            generate(model, inputs, max_new_tokens=4, do_sample=False, use_cache=cache)
            for cache in (True, False)
        ]
    assert torch.equal(found[0], found[1])


def test_every_hidden_state_has_the_encoder_s_length() -> None:
    model: Any = built("qwen3_vl")
    inputs, lengths = ZOO["qwen3_vl"].inputs("ragged"), set()
    pixels, grids = inputs["pixel_values"], inputs["image_grid_thw"]
    with torch.no_grad(), tc.prune(model, MergePairs(2), prompt=torch.zeros(1, 1)):
        found = model.model.get_image_features(pixels, grids, output_hidden_states=True)
    lengths = {len(states) for states in found.hidden_states}
    assert lengths == {len(pixels)}


@dataclass(frozen=True)
class ReadsToo(MergePairs):
    """Asks for keys of the vision encoder in which it merges."""

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        return (num_blocks - 1,)


def test_keys_of_merged_tokens_that_are_rotated_are_refused() -> None:
    with pytest.raises(InputError, match="rotates queries and keys"):
        tc.prune(built("qwen2_vl"), ReadsToo(2), prompt=torch.zeros(1, 1))
