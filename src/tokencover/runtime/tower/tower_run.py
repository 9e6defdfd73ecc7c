"""One run of a vision tower that merges tokens, and what merging does on plain tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods import TowerChoice, TowerView
from tokencover.runtime.tower.squares import Squares
from tokencover.runtime.tower.vision_tower import VisionTower


@dataclass(slots=True)
class TowerRun:
    """One forward pass of a tower.

    Attributes
    ----------
    squares : Squares
        What a method merges: its first tokens, class tokens apart, or squares of them.
    received : Tensor or None
        ``(c, n)`` int64, which of those that block 0 received stands for each first one.
    groups : list of Tensor
        For each block that was reached ``(c, n)`` int64: which of its own stands for each first
        one; in the end, which of its output.
    projections : dict
        ``(c, m, heads * head_dim)``, "q" and "k" of the attention that ran last, if it is
        watched.
    bias : Tensor or None
        ``(c, m)``, what that attention added for the sizes of its tokens.
    crops : tuple of int or None
        Crops of each picture, once they were asked for.
    seconds : float
        Time the method took.
    complete : bool
        Whether the tower came to its end.
    """

    squares: Squares
    received: Tensor | None = None
    groups: list[Tensor] = field(default_factory=list)
    projections: dict[str, Tensor] = field(default_factory=dict)
    bias: Tensor | None = None
    crops: tuple[int, ...] | None = None
    seconds: float = 0.0
    complete: bool = False

    def count_sizes(self, states: Tensor) -> Tensor:
        """``(c, m)`` int64, for how many first ones each of the states ``(c, t, d)`` stands."""
        return count_members(self.groups[-1], self.squares.count(states))

    def keys(self, tower: VisionTower, block: int) -> Tensor:
        """``(c, heads, m, head_dim)``, of the attention that ran last, that of this block."""
        return self.squares.average_keys(self._find_by_head(tower, "k", block))

    def attention(self, tower: VisionTower, block: int) -> Tensor:
        """``(c, m, m)`` float32, its weights, mean over heads."""
        queries, keys = (self._find_by_head(tower, name, block) for name in ("q", "k"))
        scaling = tower.find_attention(block).scaling
        return self.squares.fold_weights(average_attention(queries, keys, scaling, self.bias))

    def _find_by_head(self, tower: VisionTower, name: str, block: int) -> Tensor:
        return tower.by_head(block, self._find_projection(name, block))

    def _find_projection(self, name: str, block: int) -> Tensor:
        if name not in self.projections:
            raise InputError(
                f"there are no keys before tower block {block + 1}, because no block has run: "
                "merge before a later one, or by the states alone."
            )
        return self.projections[name]


def check_choice(choice: TowerChoice, view: TowerView, where: str) -> None:
    """Refuse a choice that is no merging of the tokens that were shown."""
    groups, states = choice.groups, choice.states
    crops, tokens, width = view.states.shape
    if groups.dtype != torch.int64 or groups.shape != (crops, tokens):
        raise InputError(
            f"{where} groups have shape {tuple(groups.shape)} and type {groups.dtype}; expected "
            f"{(crops, tokens)} and torch.int64."
        )
    if states.dim() != 3 or (states.shape[0], states.shape[2]) != (crops, width):
        raise InputError(
            f"{where} merged states have shape {tuple(states.shape)}; expected "
            f"({crops}, new tokens, {width})."
        )
    count = states.shape[1]
    if bool(((groups < 0) | (groups >= count)).any()):
        raise InputError(
            f"{where} groups run from {int(groups.min())} to {int(groups.max())}, but there are "
            f"{count} merged states."
        )
    members = count_members(groups, count)
    if not bool(members.all()):
        crop, empty = (members == 0).nonzero()[0].tolist()
        raise InputError(f"{where} new token {empty} of crop {crop} has no member.")
    classes = torch.arange(view.classes, device=groups.device)
    apart = groups[:, : view.classes] == classes
    if not bool(apart.all()) or bool((members[:, : view.classes] != 1).any()):
        raise InputError(
            f"{where} the first {view.classes} tokens are class tokens, which must stay alone and "
            f"first; their groups are {groups[:, : view.classes].tolist()}."
        )


def count_members(groups: Tensor, count: int) -> Tensor:
    """How many of the tokens ``(c, n)`` are in each group, ``(c, count)`` int64."""
    return groups.new_zeros(len(groups), count).scatter_add(1, groups, torch.ones_like(groups))


def weigh_sizes(sizes: Tensor, states: Tensor) -> Tensor:
    """``(c, n)``, what is added to the attention that tokens of these sizes receive."""
    return sizes.to(states.device).float().log().to(states.dtype)


def add_bias(
    args: tuple[Any, ...], kwargs: dict[str, Any], bias: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a block, its attention biased by ``(c, n)`` towards larger tokens."""
    states = args[0]
    bias = bias[:, None, None, :].expand(-1, -1, states.shape[1], -1)
    if len(args) > 1:
        mask = bias if args[1] is None else args[1] + bias
        return (states, mask, *args[2:]), kwargs
    given = kwargs.get("attention_mask")
    return args, {**kwargs, "attention_mask": bias if given is None else given + bias}


def average_attention(queries: Tensor, keys: Tensor, scaling: float, bias: Tensor | None) -> Tensor:
    """Attention weights ``(c, n, n)`` float32, mean over heads.

    Parameters
    ----------
    queries, keys : Tensor
        ``(c, heads, n, head_dim)``.
    scaling : float
        What their products are multiplied by.
    bias : Tensor or None
        ``(c, n)``, added to them for each key.
    """
    crops, heads, tokens, _ = queries.shape
    mean = torch.zeros(crops, tokens, tokens, device=queries.device)
    for head in range(heads):  # one map at a time: all of them are the largest tensor of a tower
        products = queries[:, head].float() @ keys[:, head].float().transpose(1, 2) * scaling
        products = products if bias is None else products + bias.float().unsqueeze(1)
        mean += products.softmax(-1)
    return mean / heads


def mark_first(labels: Tensor) -> Tensor:
    """True where a value first occurs in its row, and where it is negative."""
    ordered, order = labels.sort(dim=-1, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(first).scatter(1, order, first) | (labels < 0)
