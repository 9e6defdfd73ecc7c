"""What methods that prune inside the decoder share: stages, base classes, dropping all tokens."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Final

import torch
from torch import Tensor

from tokencover.budget import PublishedMode, resolve_mode, round_half_up, tokens_to_keep
from tokencover.errors import InputError
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import ActsOnce, BudgetedMethod, Choice, Details, View

NOTE: Final = "final_wipe"
CENTERS: Final = ("prompt_centers", "visual_centers")


# ---- stages -------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def scale_stages(published: tuple[int, ...], published_depth: int, depth: int) -> tuple[int, ...]:
    """Return the stages, layers before which a method prunes, for another number of layers.

    They keep their fractions of the depth, rounded, at least one layer apart and not before layer
    1. Stages after the last layer are omitted.
    """
    scaled: list[int] = []
    for layer in published:
        nearest = round_half_up(Fraction(layer * depth, published_depth))
        scaled.append(max(nearest, scaled[-1] + 1 if scaled else 1))
    within = tuple(layer for layer in scaled if layer < depth)
    if not within:
        raise InputError(
            f"a decoder of {depth} layers has no pruning layer after its first layer: use a method "
            "that prunes before the decoder."
        )
    return within


class MethodInStages(BudgetedMethod):
    """A method that prunes several times; a subclass declares the field `stages`."""

    stages: tuple[int, ...] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        stages = self.stages
        if stages is None:
            return
        whole = isinstance(stages, tuple) and all(type(layer) is int for layer in stages)
        if not whole or not stages or list(stages) != sorted(set(stages)) or min(stages) < 0:
            raise InputError(
                "stages must be ascending layer indices from 0 on, such as (2, 6, 15); got "
                f"{stages!r}."
            )


def fit_stages(stages: tuple[int, ...], depth: int) -> tuple[int, ...]:
    """Return the stages, or raise if a decoder of this depth has no layer after each."""
    if stages[-1] >= depth:
        raise InputError(
            f"stages {stages} do not fit a model of {depth} layers: the last stage must be at most "
            f"{depth - 1}."
        )
    return stages


def count_by_layer(present: Sequence[int], stages: Sequence[int], depth: int) -> list[int]:
    """Return the number of visual tokens per layer, given those before the first and each stage."""
    spans = pairwise((0, *stages, depth))
    return [
        count for count, (begin, end) in zip(present, spans, strict=True) for _ in range(begin, end)
    ]


@lru_cache(maxsize=256)
def shrink_evenly(total: int, fraction: Fraction, stages: int) -> tuple[int, ...]:
    """Return the tokens after each stage if all keep one ratio, and `fraction` remains at the end.

    That is ``floor(total * fraction ** (i / stages))``, at least 1, without rounding errors.
    """
    return tuple(
        _compute_root(int(total**stages * fraction**stage), stages, 1, total)
        for stage in range(1, stages + 1)
    )


def _compute_root(value: int, degree: int, low: int, high: int) -> int:
    """Return the largest integer in ``low .. high`` whose power is at most `value`."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low


def check_text(view: View) -> None:
    """Raise for samples without text after the image."""
    silent = (~view.text_mask.any(-1)).nonzero().squeeze(-1).tolist()
    if silent:
        raise InputError(
            f"samples {silent} of those with images have no text after the image, so nothing "
            "attends to their visual tokens: put the question after the image."
        )


# ---- methods that read the last layer -----------------------------------------------------------


class LastLayerMethod(ActsOnce):
    """A method that reads keys or attention of the last layer before pruning."""

    reads: ClassVar[str] = "attention to read"
    """What is missing if no layer has run, for the message."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.after == 0:
            raise InputError(
                f"after=0 leaves {self.card.title} without {self.reads}: let at least 1 layer run."
            )

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Return the last layer before pruning."""
        return (self.after - 1,)

    def compute_last_attention(self, view: View) -> Tensor:
        """Return the attention of the last prompt token, mean over heads, ``(b, n)``."""
        return view.attention(self.after - 1, view.last.unsqueeze(-1)).squeeze(2).mean(1)


# ---- methods that run layers ahead --------------------------------------------------------------


@dataclass(frozen=True)
class LookAheadMethod(ActsOnce):
    """Keep what the last prompt token attends to in layers that are run ahead; drop all later.

    With ``budget_mode="layer_mean"``, a mean of K over L layers and M visual tokens,
    ``ceil((L * K - after * M) / (wipe - after))`` are kept until the wipe: the paper rounds up.
    """

    looks_ahead = True
    published_mode: ClassVar[PublishedMode] = "layer_mean"

    after: int = 2
    wipe: int | float | None = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wipe is not None:
            check_wipe(self.wipe)

    @abstractmethod
    def compute_ahead_attention(self, view: View) -> Tensor:
        """Return ``(b, heads, 1, n)``, attention of the last prompt token some layers ahead."""

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer after the first `after` ones, and that of the wipe."""
        stages = super().pruning_layers(num_layers)
        if self.wipe is None:
            return stages
        return (*stages, resolve_wipe_layer(self.wipe, num_layers, stages))

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        """Newline tokens stay until the wipe."""
        return layer_idx != self.after

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens per layer, 0 after the wipe."""
        first, end = (*self.pruning_layers(num_layers), num_layers)[:2]
        return [total] * first + [num_kept] * (end - first) + [0] * (num_layers - end)

    def num_kept(self, view: View) -> list[int]:
        """Return how many visual tokens of each sample are kept until the wipe."""
        if resolve_mode(self.budget_mode, self.published_mode) != "layer_mean":
            return super().num_kept(view)
        return [
            compute_count_for_mean(
                tokens_to_keep(self.budget, total),
                total,
                functools.partial(self.schedule, total=total, num_layers=view.num_layers),
            )
            for total in view.total.tolist()
        ]

    def choose(self, view: View) -> Choice:
        """Keep the highest head means of the last row, or nothing."""
        if view.layer_idx != self.after:
            return wipe(view)
        scores = self.compute_ahead_attention(view).squeeze(2).mean(1)
        choice = Choice(choose_best(scores, view.mask, self.num_kept(view)))
        record_details(view, choice)
        return choice


def compute_count_for_mean(mean: int, total: int, schedule: Callable[[int], Sequence[int]]) -> int:
    """Return how many of `total` tokens to keep for a mean of at least `mean` tokens per layer."""
    before = schedule(0)
    spent, depth = sum(before), len(before)
    pruned_layers = sum(schedule(1)) - spent
    count = -(-(depth * mean - spent) // pruned_layers)
    if count < 1:
        raise InputError(
            f"a mean of {mean} visual tokens over {depth} layers cannot be reached: the layers "
            f"before pruning process all {total}. Use at least {spent // depth + 1}, or prune "
            "after fewer layers."
        )
    return min(count, total)


# ---- dropping all visual tokens -----------------------------------------------------------------


def check_wipe(layer: object) -> None:
    """Raise for what is neither a layer index nor a fraction of the depth."""
    is_index = isinstance(layer, int) and not isinstance(layer, bool) and layer >= 1
    is_fraction = isinstance(layer, float) and 0 < layer < 1
    if not is_index and not is_fraction:
        raise InputError(
            "the wipe layer must be a layer index >= 1 (for example 24) or a fraction of the depth "
            f"in (0, 1) (for example 0.75), got {layer!r}."
        )


def resolve_wipe_layer(layer: int | float, depth: int, stages: Sequence[int]) -> int:
    """Return the index of the layer before which all visual tokens are dropped, after all `stages`.

    A fraction of the depth gives the nearest layer, halves rounded up.
    """
    index = layer if isinstance(layer, int) else round_half_up(Fraction(layer) * depth)
    first = max((0, *stages)) + 1
    if first >= depth:
        raise InputError(
            f"no layer is left for a wipe: tokens are dropped before layer {first - 1} of {depth}. "
            "Prune at an earlier layer."
        )
    if not first <= index < depth:
        raise InputError(
            f"a wipe before layer {index} (given as {layer!r}) is not possible: the model has "
            f"{depth} layers, and the method needs those before layer {first}. Use a layer from "
            f"{first} to {depth - 1}."
        )
    return index


def wipe(view: View) -> Choice:
    """Keep nothing; record the remaining tokens and the details of the last choice."""
    nothing = view.mask.new_zeros(0, dtype=torch.int64)
    recorded: list[Mapping[str, Any]] = view.notes.get(NOTE, [])
    if len(recorded) != len(view.mask):  # a sample without tokens is not in the view any more
        recorded = [{}] * len(view.mask)
    details = []
    for mask, positions, known in zip(view.mask, view.positions, recorded, strict=True):
        here = positions[mask]
        centers = {name: _get_indices(known[name], here) for name in CENTERS if name in known}
        everything = torch.arange(len(here), device=here.device)
        details.append(Details(known, **centers, wiped=everything))
    return Choice([nothing] * len(view.mask), details=details)


def record_details(view: View, choice: Choice) -> None:
    """Record a choice's details for the wipe, with sequence positions instead of indices."""
    recorded = []
    for positions, details in zip(view.positions, choice.details, strict=False):
        centers = {
            name: positions[details[name].to(positions.device)]
            for name in CENTERS
            if name in details
        }
        recorded.append(Details(details, **centers))
    view.notes[NOTE] = recorded


def _get_indices(wanted: Tensor, positions: Tensor) -> Tensor:
    """Return indices of those wanted positions that are among the ascending `positions`."""
    present = torch.isin(wanted, positions)
    return torch.searchsorted(positions, wanted[present])
