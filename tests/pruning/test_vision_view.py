"""What methods see inside the vision encoder, by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.pruning.merging_method import MergePairs
from tests.pruning.test_matrix import built
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tests.zoo.entry import Inputs
from tokencover.errors import InputError
from tokencover.methods.base import VisionMerge, VisionView
from tokencover.pruning.prune import prune

WAYS = [(False, False), (False, True), (True, False), (True, True)]


@dataclass(frozen=True)
class Watch(MergePairs):
    """Merges, and keeps views with their keys and attention for the test."""

    pairs: int = 2
    encoder_stages: tuple[int, ...] = (1, 2)
    asked: list[tuple[int, int]] = field(default_factory=list, compare=False)
    seen: list[tuple[VisionView, Tensor, Tensor]] = field(default_factory=list, compare=False)

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        self.asked.append((num_blocks, feature_block))
        return super().vision_blocks(num_blocks, feature_block)

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        self.seen.append((view, view.keys(), view.attention()))
        return super().merge_in_vision_encoder(view)


def run(model: PreTrainedModel, inputs: Inputs, method: MergePairs) -> None:
    with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
        model(**inputs, use_cache=False)


@pytest.mark.parametrize(("inside", "proportional"), WAYS)
def test_attention_is_what_the_block_computed(inside: bool, proportional: bool) -> None:
    model: Any = built("llava", "eager")
    method = Watch(inside_vision_blocks=inside, proportional_attention=proportional)
    recorded: list[Tensor] = []
    handles = [
        block.self_attn.register_forward_hook(lambda _, args, output: recorded.append(output[1]))
        for block in model.model.vision_tower.encoder.layers
    ]
    run(model, ZOO["llava"].inputs("two_images"), method)
    for handle in handles:
        handle.remove()
    assert [view.block for view, _, _ in method.seen] == [1, 2]
    for view, keys, attention in method.seen:
        block = view.block if inside else view.block - 1
        assert attention.dtype == torch.float32
        torch.testing.assert_close(attention, recorded[block].mean(1), atol=1e-6, rtol=1e-5)
        assert keys.shape == (*view.hidden_states.shape[:1], 2, view.hidden_states.shape[1], 12)


@pytest.mark.parametrize("proportional", [False, True])
def test_attention_equals_the_softmax_by_hand(proportional: bool) -> None:
    """The second merge, inside block 2: keys and bias are those of tokens merged in block 1."""
    model: Any = built("llava")
    method = Watch(inside_vision_blocks=True, proportional_attention=proportional)
    block = model.model.vision_tower.encoder.layers[2]
    received: list[Tensor] = []
    handle = block.register_forward_pre_hook(lambda _, args: received.append(args[0]))
    run(model, ZOO["llava"].inputs("single"), method)
    handle.remove()
    (_, (view, keys, attention)) = method.seen
    normed = block.layer_norm1(received[0])
    queries, by_hand = (
        each(normed).unflatten(-1, (2, 12)).transpose(1, 2)
        for each in (block.self_attn.q_proj, block.self_attn.k_proj)
    )
    torch.testing.assert_close(keys, by_hand, atol=1e-6, rtol=1e-5)
    products = queries @ by_hand.transpose(-1, -2) / 12**0.5
    if proportional:
        products = products + view.sizes.float().log()[:, None, None]
    torch.testing.assert_close(attention, products.softmax(-1).mean(1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_members_say_what_each_first_token_is_part_of(inside: bool) -> None:
    method = Watch(inside_vision_blocks=inside)
    run(built("llava"), ZOO["llava"].inputs("two_images"), method)
    (first, _, _), (second, _, _) = method.seen
    everyone = torch.arange(26).expand(4, -1)
    assert torch.equal(first.members, everyone)
    assert second.hidden_states.shape[1] == 24
    for crop in range(4):
        counts = second.members[crop].bincount(minlength=24)
        assert torch.equal(counts, second.sizes[crop])
        assert sorted(counts.tolist()) == [1] * 22 + [2] * 2


def test_methods_are_asked_with_the_feature_block() -> None:
    method = Watch()
    run(built("llava"), ZOO["llava"].inputs("single"), method)
    assert set(method.asked) == {(3, 1)}
    assert {view.feature_block for view, _, _ in method.seen} == {1}


def crops_of(name: str, inputs: Inputs) -> list[tuple[int, ...]]:
    method = Watch(encoder_stages=(1,))
    run(built(name), inputs, method)
    for view, _, _ in method.seen:
        assert sum(view.crops) == len(view.hidden_states)
    return [view.crops for view, _, _ in method.seen]


def test_crops_of_plain_images() -> None:
    assert crops_of("llava", ZOO["llava"].inputs("two_images")) == [(1, 1, 1, 1)]


def test_crops_of_tiled_images() -> None:
    """Images of 24 x 14, 12 x 24 and 11 x 12, cut into tiles of 12 x 12, and a base view each."""
    assert crops_of("llava_next", ZOO["llava_next"].inputs("two_images")) == [(5, 3, 2, 5)]


def test_crops_of_images_and_videos() -> None:
    inputs = ZOO["video_llava"].inputs("image_and_video")
    assert crops_of("video_llava", inputs) == [(1, 1), (2,)]
    assert crops_of("video_llava", ZOO["video_llava"].inputs("video")) == [(2, 2)]


def test_grids_of_encoders_with_and_without_class_token() -> None:
    method = Watch(encoder_stages=(1,))
    run(built("llava"), ZOO["llava"].inputs("single"), method)
    assert (method.seen[0][0].grid, method.seen[0][0].classes) == ((5, 5), 1)
    variant, method = VARIANTS["llava, siglip"], Watch(encoder_stages=(1,))
    run(variant.build(), variant.inputs, method)
    assert (method.seen[0][0].grid, method.seen[0][0].classes) == ((4, 4), 0)


def test_an_encoder_called_by_itself_runs_as_it_is() -> None:
    model: Any = built("llava_next")
    method = Watch(encoder_stages=(1,))
    with torch.no_grad(), prune(model, method, prompt=torch.zeros(1, 1)):
        model.model.vision_tower(torch.zeros(3, 3, 12, 12))
    assert not method.seen


def test_there_is_no_attention_before_the_first_block() -> None:
    method = Watch(encoder_stages=(0,))
    with pytest.raises(InputError, match="no keys before vision-encoder block 0"):
        run(built("llava"), ZOO["llava"].inputs("single"), method)


def test_features_from_before_the_first_block_are_refused() -> None:
    model = ZOO["llava"].build()
    model.config.vision_feature_layer = 0
    with pytest.raises(InputError, match="which no block computes"):
        prune(model, Watch(), prompt=torch.zeros(1, 1))
