"""Merging in a vision encoder that packs images, done slowly by hand, one frame after the other.

The encoder keeps its length: every square of a group has the state of the group. Its blocks are
written out, everything before and after them is the model's own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.vision_utils import get_vision_window_index

from tests.pruning.merging_method import MergePairs
from tokencover.methods.base import VisionMerge, VisionView


@dataclass(frozen=True)
class MergeByAttention(MergePairs):
    """Merge squares by how much they are attended to; each row of weights must add up to 1."""

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        weights = view.attention()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
        groups = torch.stack([self.plan(each.sum(0), view.classes) for each in weights])
        joins = torch.nn.functional.one_hot(groups) * view.sizes.unsqueeze(-1)
        shares = joins.transpose(1, 2).to(view.hidden_states)
        return VisionMerge(groups, shares @ view.hidden_states / shares.sum(-1, keepdim=True))


Patches = list[int]
"""Where the patches of a square lie in the vision encoder's row."""


@contextmanager
def merge_slowly(encoder: Any, method: MergePairs) -> Iterator[None]:
    """Let the blocks of a vision encoder merge by hand."""
    slow = SlowEncoder(encoder, method)
    handle = encoder.register_forward_pre_hook(slow.begin, with_kwargs=True)
    for number, block in enumerate(slow.blocks):
        block.forward = functools.partial(slow.run, number, block)
    try:
        yield
    finally:
        handle.remove()
        for block in slow.blocks:
            del block.forward


class SlowEncoder:
    def __init__(self, encoder: Any, method: MergePairs) -> None:
        self.encoder, self.method = encoder, method
        self.blocks: list[Any] = list(
            encoder.blocks if hasattr(encoder, "blocks") else _get_layers(encoder)
        )
        self.frames: list[SlowFrame] = []

    def begin(self, _: Any, args: Any, kwargs: Any) -> None:
        grids = kwargs["grid_thw"] if "grid_thw" in kwargs else args[1]
        self.frames = [SlowFrame(squares) for squares in list_squares(self.encoder, grids)]

    def run(
        self,
        number: int,
        block: Any,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: Any = None,
        **_: Any,
    ) -> Tensor:
        parts, out = Parts(block), torch.empty_like(hidden_states)
        merges, inside = number in self.method.encoder_stages, self.method.inside_vision_blocks
        for frame in self.frames:
            frame.take(hidden_states)
            if merges and not inside:
                frame.merge(self.method)
            frame.attend(parts, self.method, cu_seqlens.tolist(), position_embeddings)
            if merges and inside:
                frame.merge(self.method)
            frame.states = [parts.feed(each) for each in frame.states]
            frame.put(out)
        return out


class SlowFrame:
    """Its groups of squares: the state of each, ``(patches, d)``, and the members."""

    def __init__(self, squares: list[Patches]) -> None:
        self.squares = squares
        self.members = [[number] for number in range(len(squares))]
        self.states: list[Tensor] = []
        self.keys: list[Tensor] | None = None
        self.received = torch.empty(0)

    def take(self, states: Tensor) -> None:
        self.states = [states[self.squares[min(each)]] for each in self.members]

    def put(self, out: Tensor) -> None:
        for state, members in zip(self.states, self.members, strict=True):
            for member in members:
                out[self.squares[member]] = state

    def attend(self, parts: Parts, method: MergePairs, ends: list[int], rotation: Any) -> None:
        projected = [parts.project(each) for each in self.states]
        if rotation is not None:
            tables = [self._average(rotation, members) for members in self.members]
            projected = [
                (_rotate(query, *table), _rotate(key, *table), value)
                for (query, key, value), table in zip(projected, tables, strict=True)
            ]
        self.keys = [key.mean(0) for _, key, _ in projected]
        queries, keys, values = (torch.cat(each) for each in zip(*projected, strict=True))
        # A square stands where its first one did, patch by patch.
        places = [place for members in self.members for place in self.squares[min(members)]]
        labels = torch.tensor([sum(place >= end for end in ends[1:]) for place in places])
        products = torch.einsum("qhd,khd->hqk", queries, keys) * parts.scaling
        products = products.masked_fill(labels[:, None] != labels, -torch.inf)
        if method.proportional_attention:
            patches = len(self.squares[0])
            sizes = [len(members) for members in self.members for _ in range(patches)]
            products = products + torch.tensor(sizes).log()
        weights = products.softmax(-1)
        by_patch = weights.mean(0).sum(0) / len(self.squares[0])
        self.received = torch.stack([each.sum() for each in by_patch.split(len(self.squares[0]))])
        mixed = torch.einsum("hqk,khd->qhd", weights, values)
        attended = parts.output(mixed.flatten(1)).split(len(self.squares[0]))
        self.states = [a + b for a, b in zip(self.states, attended, strict=True)]

    def merge(self, method: MergePairs) -> None:
        scores = torch.stack([each.sum() for each in self.states])
        if self.keys is not None:
            scores = scores + torch.stack([each.mean(0).sum() for each in self.keys])
        if isinstance(method, MergeByAttention):
            scores = self.received
        groups = method.plan(scores, 0).tolist()
        states, owned = [], []
        for group in range(max(groups) + 1):
            parts = [number for number, own in enumerate(groups) if own == group]
            total = sum(len(self.members[part]) for part in parts)
            mixed = [self.states[part] * len(self.members[part]) / total for part in parts]
            states.append(torch.stack(mixed).sum(0))
            owned.append([each for part in parts for each in self.members[part]])
        self.states, self.members = states, owned

    def _average(self, rotation: Any, members: list[int]) -> tuple[Tensor, Tensor]:
        cosines, sines = (
            torch.stack([table[self.squares[each]] for each in members]).mean(0)
            for table in rotation
        )
        return cosines, sines


class Parts:
    """A block's norms, projections and feed-forward network, by whatever names it has them."""

    def __init__(self, block: Any) -> None:
        self.block = block
        self.attention: Any = block.attn if hasattr(block, "attn") else block.self_attn
        self.scaling = self.attention.head_dim**-0.5

    def project(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``(patches, heads, head_dim)``."""
        own, block = self.attention, self.block
        normed = (block.norm1 if hasattr(block, "norm1") else block.layer_norm1)(states)
        if hasattr(own, "qkv"):
            made = list(own.qkv(normed).chunk(3, dim=-1))
        elif hasattr(own, "q"):
            made = [own.q(normed), own.k(normed), own.v(normed)]
        else:
            made = [own.q_proj(normed), own.k_proj(normed), own.v_proj(normed)]
        query, key, value = (each.unflatten(-1, (-1, own.head_dim)) for each in made)
        if hasattr(own, "q_norm"):
            query, key = own.q_norm(query), own.k_norm(key)
        return query, key, value

    def output(self, attended: Tensor) -> Tensor:
        own = self.attention
        found: Tensor = (own.proj if hasattr(own, "proj") else own.out_proj)(attended)
        return found

    def feed(self, states: Tensor) -> Tensor:
        block = self.block
        normed = (block.norm2 if hasattr(block, "norm2") else block.layer_norm2)(states)
        fed: Tensor = block.mlp(normed)
        return states + fed


def list_squares(encoder: Any, grids: Tensor) -> list[list[Patches]]:
    """For each crop its squares in raster order, each with the places of its patches.

    ERNIE makes one token of a square of two frames.
    """
    config, start, crops = encoder.config, 0, []
    side = config.spatial_merge_size
    in_raster = type(encoder).__name__.startswith("PaddleOCR")
    for times, rows, columns in grids.tolist():
        together = getattr(config, "temporal_merge_size", 1) if times > 1 else 1
        for _ in range(times // together):
            squares: list[Patches] = []
            for row in range(rows // side):
                for column in range(columns // side):
                    if in_raster:
                        corner = start + row * side * columns + column * side
                        one = [corner + a * columns + b for a in range(side) for b in range(side)]
                    else:
                        first = start + (row * (columns // side) + column) * side**2
                        one = list(range(first, first + side**2))
                    frames = range(together)
                    squares.append([at + frame * rows * columns for frame in frames for at in one])
            crops.append(squares)
            start += together * rows * columns
    if not hasattr(config, "fullatt_block_indexes"):
        return crops
    order, _ = get_vision_window_index(grids, side, config.window_size, config.patch_size)
    new = order.argsort().tolist()
    return [
        [[new[place // side**2] * side**2 + place % side**2 for place in square] for square in each]
        for each in crops
    ]


def _get_layers(encoder: Any) -> Any:
    whole = encoder.vision_model if hasattr(encoder, "vision_model") else encoder
    return whole.encoder.layers


def _rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotate ``(patches, heads, head_dim)`` by tables ``(patches, head_dim)``."""
    first, second = states.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return states * cosines.unsqueeze(1) + turned * sines.unsqueeze(1)
