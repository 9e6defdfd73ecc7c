"""One run of a vision encoder that merges tokens, and merging on plain tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.errors import InputError
from tokencover.methods import VisionMerge, VisionView
from tokencover.pruning.vision.encoder import VisionEncoder
from tokencover.pruning.vision.merging.row import Row, count_members, reshape_like
from tokencover.pruning.vision.vision_attention import bound_segments


@dataclass(slots=True)
class MergingRun:
    """One forward pass of a vision encoder.

    `first` is its row before merging, `row` the current one, `attended` that of the attention that
    ran last, `passed` the output row of each block. `bias` ``(m,)`` was added for token sizes;
    `checked` lists segment bounds that are known to lie within crops.
    """

    first: Row
    row: Row = field(init=False)
    attended: Row = field(init=False)
    passed: list[Row] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)
    projections: dict[str, Tensor] = field(default_factory=dict)
    bias: Tensor | None = None
    checked: list[Tensor] = field(default_factory=list)
    seconds: float = 0.0
    complete: bool = False

    def __post_init__(self) -> None:
        self.row = self.attended = self.first

    def check_length(self, states: Tensor) -> None:
        """Raise if the encoder has another number of tokens than its images make."""
        found = states[..., 0].numel()
        if found != len(self.first.places):
            raise InputError(
                f"The images make {len(self.first.places)} tokens in the vision encoder, which got "
                f"{found}. Prepare them with the model's own processor."
            )

    def prepare(
        self, states: Tensor, kwargs: dict[str, Any], proportional: bool
    ) -> tuple[Tensor, dict[str, Any]]:
        """States and arguments of a block, for the tokens that exist now.

        Tokens attend to each other if their first members did. A token is rotated by the mean of
        its members' tables, as ToMe's author advises (its repository, issue 29).
        """
        ends = kwargs.get("cu_seqlens")
        if ends is not None and all(ends is not each for each in self.checked):
            bound_segments(self._number_crops(), ends.cpu().long())
            self.checked.append(ends)
        changed = dict(kwargs)
        if ends is not None and self.row is not self.first:
            segments = self.row.number_segments(ends)
            arranged = self.row.arrange(segments)
            flat = arranged.order(self.row.cut(states.flatten(0, -2)))
            states, self.row = reshape_like(flat, states), arranged
            changed |= _shorten_arguments(kwargs, arranged, segments)
        self.attended, self.projections, self.bias = self.row, {}, None
        self.arguments = {"rotation": changed.get("position_embeddings"), "ends": ends}
        if proportional and self.row.counts != self.first.counts:
            sizes = self.row.weigh_tokens().to(states.device)
            self.bias = sizes.float().log().to(states.dtype)
        return states, changed

    def finish_block(self, number: int, depth: int, output: Tensor) -> Tensor:
        """The output of a block; after the last one, spread over all first tokens."""
        self.passed.append(self.row)
        if number == depth - 1:
            output, self.row = self.spread(self.row, output), self.first
        return output

    def spread(self, row: Row, states: Tensor) -> Tensor:
        """Copy states of a row to all first tokens that they stand for."""
        return states if row is self.first else row.spread(states)

    def compute_keys(self, encoder: VisionEncoder, block: int, part: int) -> Tensor:
        """Keys ``(c, heads, n, head_dim)`` of the attention that ran last, for one set."""
        keys = self._compute_projected(encoder, block, "k", part)
        return self.row.sets[part].squares.average_keys(keys)

    def compute_attention(self, encoder: VisionEncoder, block: int, part: int) -> Tensor:
        """Its weights ``(c, n, n)`` float32, averaged over heads."""
        queries, keys = (self._compute_projected(encoder, block, name, part) for name in ("q", "k"))
        bias = None if self.bias is None else self.attended.cut(self.bias)[part]
        segments = None
        if self.arguments["ends"] is not None:
            numbers = self.attended.number_segments(self.arguments["ends"])
            segments = self.attended.split(numbers)[part].to(queries.device)
        scaling = encoder.get_attention(block).scaling
        weights = average_attention(queries, keys, scaling, bias, segments)
        return self.row.sets[part].squares.fold_weights(weights)

    def _compute_projected(
        self, encoder: VisionEncoder, block: int, name: str, part: int
    ) -> Tensor:
        if not self.projections:
            raise InputError(
                f"There are no keys before vision-encoder block {block + 1}, because no block has "
                "run. Merge before a later block, or by hidden states alone."
            )
        attention = encoder.get_attention(block)
        found = attention.compute_projected(self.projections, self.arguments["rotation"])[name]
        return self.attended.cut(found)[part].transpose(1, 2)

    def _number_crops(self) -> Tensor:
        """The crop of each first token, ``(first tokens,)`` int64 on the CPU."""
        numbers, start = torch.empty(len(self.first.places), dtype=torch.int64), 0
        for each in self.first.sets:
            crops = torch.arange(start, start + len(each.places)).unsqueeze(-1)
            numbers[each.places.cpu()] = crops.expand(each.places.shape)
            start += len(each.places)
        return numbers


def _shorten_arguments(kwargs: dict[str, Any], row: Row, segments: Tensor) -> dict[str, Any]:
    """Token-wise arguments of a block, for the tokens of a row in these segments."""
    ends = kwargs["cu_seqlens"]
    _, lengths = segments.unique(return_counts=True)
    changed: dict[str, Any] = {"cu_seqlens": functional.pad(lengths.cumsum(0), (1, 0)).to(ends)}
    if kwargs.get("max_seqlen") is not None:
        changed["max_seqlen"] = int(lengths.max())
    tables = kwargs.get("position_embeddings")
    if tables is not None:
        changed["position_embeddings"] = tuple(row.average(each) for each in tables)
    return changed


def check_choice(choice: VisionMerge, view: VisionView, where: str) -> None:
    """Raise unless the choice partitions the tokens of the view."""
    groups, states = choice.groups, choice.hidden_states
    crops, tokens, width = view.hidden_states.shape
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


def average_attention(
    queries: Tensor,
    keys: Tensor,
    scaling: float,
    bias: Tensor | None,
    segments: Tensor | None = None,
) -> Tensor:
    """Attention weights ``(c, n, n)`` float32, averaged over heads.

    `queries` and `keys` are ``(c, heads, n, head_dim)``. `bias` ``(c, n)`` is added per key. Tokens
    attend to each other within `segments` ``(c, n)`` int64.
    """
    crops, heads, tokens, _ = queries.shape
    mean = torch.zeros(crops, tokens, tokens, device=queries.device)
    hidden = None if segments is None else segments.unsqueeze(1) != segments.unsqueeze(2)
    for head in range(heads):  # one map at a time: all of them are the largest tensor of a encoder
        products = queries[:, head].float() @ keys[:, head].float().transpose(1, 2) * scaling
        products = products if bias is None else products + bias.float().unsqueeze(1)
        products = products if hidden is None else products.masked_fill(hidden, -torch.inf)
        mean += products.softmax(-1)
    return mean / heads


def mark_first(labels: Tensor) -> Tensor:
    """True where a value first occurs in its row, and where it is negative."""
    ordered, order = labels.sort(dim=-1, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(first).scatter(1, order, first) | (labels < 0)
