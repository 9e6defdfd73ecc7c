"""Attention of vision-encoder blocks: queries, keys, and which tokens attend to each other."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokencover.errors import InputError


class VisionAttention:
    """The attention of one vision-encoder block; raises if its parts are unknown."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.parts = _get_parts(module)
        self.scaling = float(module.scaling if hasattr(module, "scaling") else module.scale)
        heads = getattr(module, "num_heads", None)
        self.heads = int(module.num_attention_heads if heads is None else heads)

    def compute_projected(self, outputs: Mapping[str, Tensor], rotation: Any) -> dict[str, Tensor]:
        """Queries "q" and keys "k", ``(tokens, heads, head_dim)``, from the outputs of `parts`."""
        if "qkv" in outputs:
            wide = outputs["qkv"]
            three = wide.reshape(-1, 3, self.heads, wide.shape[-1] // (3 * self.heads))
            queries, keys = three[:, 0], three[:, 1]
        else:
            queries, keys = (self._split_heads(outputs[name]) for name in ("q", "k"))
        if rotation is not None:
            queries, keys = _rotate(self.module, queries, keys, rotation)
        return {"q": queries, "k": keys}

    def count_tokens(self, outputs: Mapping[str, Tensor]) -> int:
        """Number of tokens in these outputs of its parts."""
        if "qkv" in outputs:
            return outputs["qkv"][..., 0].numel()
        return len(self._split_heads(outputs["q"]))

    def flatten(self, name: str, output: Tensor) -> Tensor:
        """The output of the part `name` as ``(tokens, width)``."""
        return output.flatten(0, -2) if name == "qkv" else self._split_heads(output).flatten(1)

    def attend(self, states: Tensor, bias: Tensor, ends: Tensor, rotation: Any) -> Tensor:
        """The attention output with a bias ``(m,)`` per key, for packed states ``(m, d)``.

        `ends` ``(s + 1,)`` are the cumulative lengths of crops or windows, from 0 on.
        """
        queries, keys, values = self._project(states)
        if rotation is not None:
            queries, keys = _rotate(self.module, queries, keys, rotation)
        module = self.module
        share = module.attention_dropout if hasattr(module, "attention_dropout") else module.dropout
        dropout = float(share) if module.training else 0.0
        lengths = ends.diff().tolist()
        heads = [each.transpose(0, 1).split(lengths, dim=1) for each in (queries, keys, values)]
        attended = [
            functional.scaled_dot_product_attention(
                query, key, value, attn_mask=own, dropout_p=dropout, scale=self.scaling
            )
            for query, key, value, own in zip(*heads, bias.split(lengths), strict=True)
        ]
        joined = torch.cat(attended, dim=1).transpose(0, 1).flatten(1)
        found: Tensor = (module.proj if hasattr(module, "proj") else module.out_proj)(joined)
        return found

    def _project(self, states: Tensor) -> list[Tensor]:
        """Queries, keys and values ``(tokens, heads, head_dim)``, not rotated."""
        children = dict(self.module.named_children())
        if "qkv" in children:
            wide = children["qkv"](states)
            found = list(wide.reshape(len(states), 3, self.heads, -1).unbind(1))
        else:
            made = (children.get(f"{each}_proj", children.get(each)) for each in "qkv")
            found = [self._split_heads(each(states)) for each in made if each is not None]
        norms = (children.get(f"{letter}_norm", nn.Identity()) for letter in "qkv")
        return [norm(each) for norm, each in zip(norms, found, strict=True)]

    def _split_heads(self, output: Tensor) -> Tensor:
        """From ``(..., heads * head_dim)``, or already split, to ``(tokens, heads, head_dim)``."""
        size: int = self.module.head_dim
        apart = output.shape[-2:] == (self.heads, size)
        return output.flatten(0, -3) if apart else output.reshape(-1, self.heads, size)


def check_whole(part: nn.Module, output: Tensor) -> None:
    """Raise if the output of a part is split over several ranks."""
    width = getattr(part, "out_features", output.shape[-1])
    if output.shape[-1] != width:
        raise InputError(
            f"The vision encoder is split over several ranks: this one has {output.shape[-1]} of "
            f"{width} query and key dimensions. Leave it out of tp_plan, or use a method that acts "
            "in the decoder, for example tc.MoB."
        )


def _get_parts(module: nn.Module) -> dict[str, nn.Module]:
    """The modules whose outputs are queries and keys, or both with values."""
    parts = dict(module.named_children())
    found = {}
    for letter in ("q", "k"):
        norm = parts.get(f"{letter}_norm")
        if norm is None or isinstance(norm, nn.Identity):
            norm = parts.get(f"{letter}_proj", parts.get(letter))
        if norm is not None:
            found[letter] = norm
    if len(found) < 2 and "qkv" in parts:
        return {"qkv": parts["qkv"]}
    if len(found) < 2:
        raise InputError(
            f"The vision encoder's {type(module).__name__} has no known query and key projections. "
            "Use a method that acts in the decoder, for example tc.MoB."
        )
    return found


def _rotate(
    module: nn.Module, queries: Tensor, keys: Tensor, rotation: Any
) -> tuple[Tensor, Tensor]:
    """Rotate ``(tokens, heads, head_dim)`` with the encoder's own function."""
    own: Any = sys.modules[type(module).__module__]
    cosines, sines = rotation
    found: tuple[Tensor, Tensor]
    if hasattr(own, "apply_rotary_pos_emb_vision"):
        found = own.apply_rotary_pos_emb_vision(queries, keys, cosines, sines)
        return found
    by_head = (queries.transpose(0, 1), keys.transpose(0, 1))
    found = own.apply_rotary_pos_emb(*by_head, cosines, sines, unsqueeze_dim=0)
    return found[0].transpose(0, 1), found[1].transpose(0, 1)


def number_segments(lengths: Sequence[Tensor | int], index: Tensor) -> Tensor:
    """Segment of each token, ``(c, p)`` int64; -1 beyond a crop. Tokens attend within segments.

    `lengths` holds, per encoder call, the ``cu_seqlens`` of its attention, or its number of tokens
    if each crop is a segment. `index` ``(c, p)`` int64 locates the tokens of crops among all
    encoder tokens.
    """
    there = index >= 0
    crops = torch.arange(len(index)).unsqueeze(-1).expand_as(index)
    crop_of = torch.zeros(int(index.max()) + 1, dtype=torch.int64)
    crop_of[index[there]] = crops[there]
    segment_of, start = torch.zeros_like(crop_of), 0
    for each in lengths:
        if isinstance(each, int):
            end = start + each
            segment_of[start:end] = crop_of[start:end]
        else:
            begins, ends = bound_segments(crop_of, start + each.cpu().long())
            end = int(ends[-1])
            places = torch.arange(start, end)
            # Larger than any number of a crop, so that calls of both kinds stay apart.
            segment_of[places] = len(index) + begins[torch.searchsorted(ends, places, right=True)]
        start = end
    return torch.where(there, segment_of[index.clamp(min=0)], -1)


def bound_segments(crop_of: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Begins and ends of non-empty segments; raises if one spans several crops.

    `crop_of` ``(tokens,)`` int64 is the crop of each token, `ends` ``(s + 1,)`` bounds the
    segments.
    """
    begins, ends = ends[:-1], ends[1:]
    begins, ends = begins[ends > begins], ends[ends > begins]
    if bool((crop_of[begins] != crop_of[ends - 1]).any()):
        raise InputError(
            "The vision encoder attends across frames here, so frames have no separate attention. "
            "Use a method that acts in the decoder, for example tc.MoB."
        )
    return begins, ends
