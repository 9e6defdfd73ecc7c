"""A method that merges pairs inside the vision encoder, and the same done slowly by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPooling

from tokencover.methods import Choice, Method, View
from tokencover.methods.base import VisionMerge, VisionView

Group = list[int]


@dataclass(frozen=True)
class MergePairs(Method):
    """Merge `pairs` pairs at each vision encoder stage, then keep every other token at each stage.

    Which ones depends on the crop alone, so that it gets the same alone and in a batch; the new
    order is not that of the image.
    """

    reads_prompt = False

    pairs: int = 4
    encoder_stages: tuple[int, ...] = (0, 1)
    stages: tuple[int, ...] = ()
    proportional_attention: bool = False
    inside_vision_blocks: bool = False
    drops_newlines: bool = True

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return self.stages

    def choose(self, view: View) -> Choice:
        return Choice([torch.arange(0, count, 2) for count in view.mask.sum(-1).tolist()])

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        return self.encoder_stages

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        scores = view.hidden_states.sum(-1)
        if view.block > 0 or self.inside_vision_blocks:
            scores = scores + view.keys().mean(1).sum(-1)
        groups = torch.stack([self.plan(each, view.classes) for each in scores])
        count = int(groups.max()) + 1
        weights = torch.nn.functional.one_hot(groups, count) * view.sizes.unsqueeze(-1)
        weights = weights.transpose(1, 2).to(view.hidden_states)
        states = weights @ view.hidden_states / weights.sum(-1, keepdim=True)
        return VisionMerge(groups, states)

    def plan(self, scores: Tensor, classes: int) -> Tensor:
        """Neighbours in the order of their scores become pairs, merged tokens come first."""
        order = scores[classes:].argsort() + classes
        groups = torch.arange(len(scores))
        for place, token in enumerate(order.tolist()):
            merged = place < 2 * self.pairs
            groups[token] = classes + (place // 2 if merged else place - self.pairs)
        return groups


@dataclass(frozen=True)
class MergeNothing(MergePairs):
    """Every token its own group, in the old order."""

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        crops, tokens, _ = view.hidden_states.shape
        return VisionMerge(torch.arange(tokens).expand(crops, -1), view.hidden_states)


def slow_encoder(encoder: Any, method: MergePairs) -> Callable[..., BaseModelOutputWithPooling]:
    """A forward that runs a CLIP, SigLIP or DINOv2 encoder crop by crop, block by block."""

    def forward(pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        first = encoder.embeddings(pixel_values)
        if _is_clip(encoder):
            first = encoder.pre_layrnorm(first)
        crops = [_slow_crop(encoder, method, crop) for crop in first]
        hidden: Any = tuple(torch.stack(each) for each in zip(*crops, strict=True))
        last = hidden[-1] if _is_clip(encoder) else _last_norm(encoder)(hidden[-1])
        return BaseModelOutputWithPooling(last_hidden_state=last, hidden_states=hidden)

    return forward


def _is_clip(encoder: Any) -> bool:
    return hasattr(encoder, "pre_layrnorm")


def _is_dinov2(encoder: Any) -> bool:
    return hasattr(encoder.encoder, "layer")


def _last_norm(encoder: Any) -> Any:
    return encoder.layernorm if _is_dinov2(encoder) else encoder.post_layernorm


@dataclass(frozen=True)
class _Parts:
    """A block's parts: its norms, its attention, and its halves written out."""

    block: Any
    dinov2: bool

    @property
    def attention(self) -> Any:
        return self.block.attention if self.dinov2 else self.block.self_attn

    def norm(self, states: Tensor) -> Tensor:
        found: Tensor = (self.block.norm1 if self.dinov2 else self.block.layer_norm1)(states)
        return found

    def attend(self, states: Tensor) -> Tensor:
        attended: Tensor = self.attention(self.norm(states[None]))[0][0]
        return states + (self.block.layer_scale1.lambda1 * attended if self.dinov2 else attended)

    def feed(self, states: Tensor) -> Tensor:
        if not self.dinov2:
            fed: Tensor = self.block.mlp(self.block.layer_norm2(states))
            return states + fed
        scaled: Tensor = self.block.layer_scale2.lambda1 * self.block.mlp(self.block.norm2(states))
        return states + scaled


def _slow_crop(encoder: Any, method: MergePairs, states: Tensor) -> list[Tensor]:
    """All hidden states of one crop, each at full length."""
    members: list[Group] = [[token] for token in range(len(states))]
    keys: Tensor | None = None
    dinov2 = _is_dinov2(encoder)
    hidden, classes = [states], int(_is_clip(encoder) or dinov2)
    for number, block in enumerate(encoder.encoder.layer if dinov2 else encoder.encoder.layers):
        parts = _Parts(block, dinov2)
        merges = number in method.encoder_stages
        if merges and not method.inside_vision_blocks:
            states, members = _merged(method, states, members, keys, classes)
        normed = parts.norm(states[None])[0]
        keys = parts.attention.k_proj(normed).unflatten(-1, (-1, parts.attention.head_dim))
        # Attending to every copy is the same as attending to sizes.
        whole = _spread(states, members) if method.proportional_attention else states
        if merges and method.inside_vision_blocks:
            whole = parts.attend(whole)
            states = _of_groups(whole, members) if method.proportional_attention else whole
            states, members = _merged(method, states, members, keys, classes)
            states = parts.feed(states)
        else:
            whole = block(whole[None], None)[0]
            states = _of_groups(whole, members) if method.proportional_attention else whole
        hidden.append(_spread(states, members))
    return hidden


def _merged(
    method: MergePairs, states: Tensor, members: list[Group], keys: Tensor | None, classes: int
) -> tuple[Tensor, list[Group]]:
    scores = states.sum(-1)
    if keys is not None:
        scores = scores + keys.mean(1).sum(-1)
    groups = method.plan(scores, classes).tolist()
    new, owned = [], []
    for group in range(max(groups) + 1):
        parts = [token for token, own in enumerate(groups) if own == group]
        total = sum(len(members[part]) for part in parts)
        weighted = [states[part] * len(members[part]) / total for part in parts]
        new.append(torch.stack(weighted).sum(0))
        owned.append([token for part in parts for token in members[part]])
    return torch.stack(new), owned


def _of_groups(whole: Tensor, members: list[Group]) -> Tensor:
    """The state of each group, which all its members share."""
    return torch.stack([whole[group[0]] for group in members])


def _spread(states: Tensor, members: list[Group]) -> Tensor:
    full = states.new_empty(sum(map(len, members)), states.shape[-1])
    for state, group in zip(states, members, strict=True):
        for token in group:
            full[token] = state
    return full
