"""How the attention of a tower block makes queries and keys, and attends by sizes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokencover.errors import InputError


class TowerAttention:
    """The attention of one tower block, whose queries and keys are those of some of its parts.

    Parameters
    ----------
    module : nn.Module
        The attention.

    Raises
    ------
    InputError
        If it has no parts that are known.
    """

    def __init__(self, module: Any) -> None:
        self.module: nn.Module = module
        self.parts = _find_parts(module)
        self.scaling = float(module.scaling if hasattr(module, "scaling") else module.scale)
        heads = getattr(module, "num_heads", None)
        self.heads = int(module.num_attention_heads if heads is None else heads)

    def find_projected(self, outputs: Mapping[str, Tensor], rotation: Any) -> dict[str, Tensor]:
        """Queries "q" and keys "k", ``(tokens, heads, head_dim)``, from the outputs of its parts.

        Parameters
        ----------
        outputs : Mapping
            Of the modules in `parts`, by their names there.
        rotation : tuple of Tensor or None
            The tables by which the attention was told to rotate them.
        """
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
        """How many tokens it had when its parts gave these outputs."""
        if "qkv" in outputs:
            return outputs["qkv"][..., 0].numel()
        return len(self._split_heads(outputs["q"]))

    def flatten(self, name: str, output: Tensor) -> Tensor:
        """The output of a part, by its name in `parts`, as ``(tokens, width)``."""
        return output.flatten(0, -2) if name == "qkv" else self._split_heads(output).flatten(1)

    def attend(self, states: Tensor, bias: Tensor, ends: Tensor, rotation: Any) -> Tensor:
        """What it would give, if it added something to the products with each key.

        Parameters
        ----------
        states : Tensor
            ``(m, d)``, packed: crops, or windows, one after the other.
        bias : Tensor
            ``(m,)``.
        ends : Tensor
            ``(s + 1,)``, their cumulated lengths from 0 on.
        rotation : tuple of Tensor or None
            The tables by which queries and keys are rotated.
        """
        queries, keys, values = self._project(states)
        if rotation is not None:
            queries, keys = _rotate(self.module, queries, keys, rotation)
        module: Any = self.module
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
        """From ``(..., heads * head_dim)``, or already apart, to ``(tokens, heads, head_dim)``."""
        apart = output.shape[-2:] == (self.heads, self._head_dim)
        return output.flatten(0, -3) if apart else output.reshape(-1, self.heads, self._head_dim)

    @property
    def _head_dim(self) -> int:
        module: Any = self.module
        found: int = module.head_dim
        return found


def check_whole(part: nn.Module, output: Tensor) -> None:
    """Reject the output of a part that is split over several ranks."""
    width = getattr(part, "out_features", output.shape[-1])
    if output.shape[-1] != width:
        raise InputError(
            f"The vision encoder is split over several ranks: this one has {output.shape[-1]} of "
            f"{width} query and key dimensions. Leave it out of tp_plan, or use a method that acts "
            "in the decoder, for example tc.MoB."
        )


def _find_parts(module: nn.Module) -> dict[str, nn.Module]:
    """The modules whose outputs are the queries and keys, or all three together."""
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
            f"the vision tower's {type(module).__name__} has no parts that are known to make "
            "queries and keys: use a method that acts in the decoder, for example tc.MoB."
        )
    return found


def _rotate(
    module: nn.Module, queries: Tensor, keys: Tensor, rotation: Any
) -> tuple[Tensor, Tensor]:
    """Rotate ``(tokens, heads, head_dim)`` by the function of the tower's own file."""
    own: Any = sys.modules[type(module).__module__]
    cosines, sines = rotation
    found: tuple[Tensor, Tensor]
    if hasattr(own, "apply_rotary_pos_emb_vision"):
        found = own.apply_rotary_pos_emb_vision(queries, keys, cosines, sines)
        return found
    by_head = (queries.transpose(0, 1), keys.transpose(0, 1))
    found = own.apply_rotary_pos_emb(*by_head, cosines, sines, unsqueeze_dim=0)
    return found[0].transpose(0, 1), found[1].transpose(0, 1)
