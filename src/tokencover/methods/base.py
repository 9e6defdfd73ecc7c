"""What a method is: data in, data out.

A method never touches a model. `tokencover.pruning` calls `Method.choose` once for each layer at
which the method prunes, with a `View` of the whole batch, and drops the tokens that were not kept.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from tokencover.budget import (
    Budget,
    BudgetMode,
    PublishedMode,
    resolve_mode,
    tokens_left,
    tokens_to_keep,
)
from tokencover.covering import check_count
from tokencover.errors import InputError
from tokencover.methods.view import View, VisionOutputs, VisionView

__all__ = [
    "ActsOnce",
    "BeforeDecoder",
    "BudgetedMethod",
    "Card",
    "Choice",
    "Details",
    "LazyValue",
    "Method",
    "Objective",
    "Positions",
    "View",
    "VisionMerge",
    "VisionOutputs",
    "VisionView",
    "validate_layer_idx",
]

Positions = Literal["original", "reindex"]
"""Position IDs of kept tokens in later layers: unchanged, or renumbered without gaps."""
Objective = Literal["both", "prompt", "visual", "none"]
"""What a method preserves: what the prompt asks about, the image, or both."""


@dataclass(frozen=True, slots=True)
class Card:
    """A method's row in the table of methods.

    Attributes
    ----------
    title : str
        The method's name in its paper.
    year : int
        Year of publication; None for controls.
    objective : str
        "prompt" (relevance to the prompt), "visual" (preserving the image), "both" or "none".
    pruning_point : str
        Where it prunes, in a few words.
    signal : str
        What it ranks tokens by, in a few words.
    paper : str
        An arXiv number, or a venue; empty for controls. Methods are listed in this order.
    needs : tuple of str
        What a model must have: "vision attention" (visual tokens correspond to patches of the
        vision encoder, so its attention can be read), "class token", "vision merging" (tokens can
        be merged inside the vision encoder), "tiles". Beyond a model: "text after the image",
        "trained twig", "another method".
    ours : bool
        Whether it is MoB or a part of it; these are listed first.
    departs : str
        How it differs from the authors' released code, in a sentence.
    caution : str
        What a reader of results must know, in a sentence; shown below tables with the method.
    """

    title: str
    year: int | None
    objective: Objective
    pruning_point: str
    signal: str
    paper: str = ""
    needs: tuple[str, ...] = ()
    ours: bool = False
    departs: str = ""
    caution: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """Tokens selected by a method, returned by `Method.choose`.

    Attributes
    ----------
    kept : sequence of Tensor
        For each sample, indices of the visual tokens of the view to keep, in any order.
    hidden_states : Tensor, optional
        ``(b, n, d)``, for methods that merge tokens; only those of kept tokens are read.
    sources : sequence of Tensor, optional
        For methods that write a token's state to another token's slot: for each sample and each
        kept index in ascending order, the visual token that is now there, or -1 for a new token.
        The trace uses it to locate kept tokens in the image.
    details : sequence of Mapping
        Per-sample values for the trace. Expensive ones can be a `LazyValue` in `Details`.
    """

    kept: Sequence[Tensor]
    hidden_states: Tensor | None = None
    sources: Sequence[Tensor] | None = None
    details: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def mask_like(self, mask: Tensor) -> Tensor:
        """Return the kept tokens as a mask of this shape."""
        kept = torch.zeros_like(mask)
        for sample, index in enumerate(self.kept):
            kept[sample, index.to(mask.device)] = True
        return kept


class LazyValue:
    """A value computed on first access, by calling this, and then cached.

    Pass detached copies of the few tensors that `compute` needs as arguments: they are held until
    then. Pickling and deep-copying evaluate it.
    """

    __slots__ = ("_compute", "_value")

    def __init__(self, compute: Callable[..., Any], *arguments: Any) -> None:
        self._compute: Callable[[], Any] | None = partial(compute, *arguments)
        self._value: Any = None

    def __call__(self) -> Any:
        """Return the value."""
        compute = self._compute
        if compute is not None:
            self._value = compute()
            self._compute = None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return _get_value, (self(),)


def _get_value(value: Any) -> Any:
    return value() if isinstance(value, LazyValue) else value


class Details(Mapping[str, Any]):
    """Values about one sample by name, read-only; a `LazyValue` reads as its value.

    Copying into another `Details` computes nothing.
    """

    __slots__ = ("_values",)

    def __init__(self, details: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        values: Mapping[str, Any] = details or {}
        if isinstance(details, Details):
            values = details._values
        self._values: dict[str, Any] = {**values, **more}

    def __getitem__(self, name: str) -> Any:
        return _get_value(self._values[name])

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


@dataclass(frozen=True, slots=True)
class VisionMerge:
    """How a method merges tokens inside a vision encoder.

    Attributes
    ----------
    groups : Tensor
        ``(c, n)`` int64, the index of the new token, ``0 .. m-1``, that each token becomes part of.
        Every new token has a member in every crop, so all crops keep the same length.
    hidden_states : Tensor
        ``(c, m, d)``, of the new tokens.
    """

    groups: Tensor
    hidden_states: Tensor


class Method(ABC):
    """A rule that selects visual tokens."""

    name: ClassVar[str] = ""
    """Its name for `get_method` and the command line."""
    card: ClassVar[Card]
    """Its row in the table of methods."""
    added_later: ClassVar[tuple[str, ...]] = ()
    """Settings that saved results of earlier versions do not have."""

    positions: Positions = "original"
    """Position IDs of kept tokens in later layers."""
    drops_newlines: bool = False
    """Whether newline tokens are in the view and may be dropped; otherwise they always stay."""
    reads_prompt: bool = True
    """Whether `choose` reads the prompt tokens; if not, no tokenizer is needed to locate them."""
    looks_ahead: bool = False
    """Whether `choose` reads attention in layers that have not run yet, by `View.ahead`."""
    merges: bool = False
    """Whether `choose` returns new hidden states; only then gradients flow through it."""
    inside_vision_blocks: bool = False
    """Whether `merge_in_vision_encoder` acts between the attention and the feed-forward network of
    a vision-encoder block, instead of before it."""
    proportional_attention: bool = False
    """Whether later vision-encoder blocks weight a merged token by the number of its members."""

    @abstractmethod
    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the indices of the decoder layers before which the method prunes, ascending."""

    @abstractmethod
    def choose(self, view: View) -> Choice:
        """Select the tokens to keep."""

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        """Whether newline tokens are in the view, and may be dropped, before this layer."""
        return self.drops_newlines

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """Return the decoder layers whose keys or attention `choose` reads."""
        return ()

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        """Return the vision-encoder blocks whose queries and keys `choose` reads.

        Parameters
        ----------
        num_blocks : int
            Number of blocks of the vision encoder.
        feature_block : int
            The block whose output becomes visual tokens.

        Returns
        -------
        sequence of int or None
            None if the method reads nothing of the vision encoder; an empty sequence if it reads
            only its features.
        """
        return None

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """Return the vision-encoder blocks before (or inside) which the method merges."""
        return ()

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Merge tokens before, or inside, a block of the vision encoder."""
        raise NotImplementedError(
            f"{type(self).__name__} has vision_blocks but no merge_in_vision_encoder"
        )


@dataclass(frozen=True)
class BudgetedMethod(Method):
    """A method with a budget, as all methods but wrappers have it.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all.
    budget_mode : "exact", "layer_mean", "flops" or "published"
        What K counts: the tokens left after the last pruning step, the mean over decoder layers,
        the tokens per layer of an unpruned prefill of the same FLOPs, or what the method's paper
        counts.
    positions : "original" or "reindex"
        Whether kept tokens keep their position IDs or are renumbered without gaps.
    """

    published_mode: ClassVar[PublishedMode] = "exact"

    setting_choices: ClassVar[Mapping[str, tuple[object, ...]]] = {}
    """The values of settings that have few."""
    setting_limits: ClassVar[Mapping[str, tuple[float, float]]] = {}
    """The smallest and the largest value of settings that are finite numbers."""
    setting_minimums: ClassVar[Mapping[str, int]] = {}
    """The smallest value of settings that are integers."""

    budget: Budget
    budget_mode: BudgetMode = field(default="exact", kw_only=True)
    positions: Positions = field(default="original", kw_only=True)

    def __post_init__(self) -> None:
        tokens_to_keep(self.budget, total=1)
        general = {"budget_mode": get_args(BudgetMode), "positions": get_args(Positions)}
        for name, values in {**general, **self.setting_choices}.items():
            if (value := getattr(self, name)) not in values:
                *others, last = map(repr, values)
                raise InputError(f"{name} must be {', '.join(others)} or {last}, got {value!r}.")
        for name, (low, high) in self.setting_limits.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not low <= value <= high or math.isinf(value):
                allowed = f"of at least {low}" if math.isinf(high) else f"from {low} to {high}"
                raise InputError(f"{name} must be a number {allowed}, got {value!r}.")
        for name, smallest in self.setting_minimums.items():
            check_count(name, getattr(self, name), smallest)

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens each decoder layer processes, `num_kept` at the end.

        It never falls when `num_kept` grows. Methods that prune several times override it.
        """
        first, *more = self.pruning_layers(num_layers)
        if more:
            raise NotImplementedError(
                f"{type(self).__name__} prunes several times and must override schedule"
            )
        return [total] * first + [num_kept] * (num_layers - first)

    def num_kept(self, view: View) -> list[int]:
        """Return how many visual tokens of each sample remain after the last pruning step."""
        return self.count_kept(view, view.total.tolist(), view.others.tolist())

    def count_kept(self, view: View, totals: list[int], others: list[int]) -> list[int]:
        """Return how many tokens remain of groups of `totals` visual and `others` other tokens."""
        groups = list(zip(totals, others, strict=True))
        counts = {
            (total, rest): tokens_left(
                self.budget,
                resolve_mode(self.budget_mode, self.published_mode),
                total=total,
                others=rest,
                schedule=lambda kept, total=total: self.schedule(kept, total, view.num_layers),  # type: ignore[misc]
                cost=view.cost,
            )
            for total, rest in set(groups)  # the samples of a batch are often alike
        }
        return [counts[group] for group in groups]

    def count_here(self, view: View) -> list[int]:
        """Return how many visual tokens of each sample the layer about to run processes."""
        return [
            self.schedule(kept, total, view.num_layers)[view.layer_idx]
            for kept, total in zip(self.num_kept(view), view.total.tolist(), strict=True)
        ]


class ActsOnce(BudgetedMethod):
    """A method that prunes once, after the first `after` decoder layers.

    A subclass declares the field ``after: int = 1``; it is validated here.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 0 is before the decoder.
    """

    after: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.after, bool) or not isinstance(self.after, int) or self.after < 0:
            raise InputError(f"after must be a number of layers, 0 or more, got {self.after!r}.")

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer that follows the first `after` ones."""
        return validate_layer_idx(self.after, num_layers)


@dataclass(frozen=True)
class BeforeDecoder(BudgetedMethod):
    """A method that prunes before the decoder; kept tokens are renumbered by default."""

    positions: Positions = field(default="reindex", kw_only=True)

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return layer 0."""
        return (0,)


def validate_layer_idx(after: int, num_layers: int) -> tuple[int]:
    """Return the layer that follows the first `after` ones, or raise if there is none."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < num_layers:
        raise InputError(
            f"after={after!r} is out of range: the decoder has {num_layers} layers, so after must "
            f"be between 0 and {num_layers - 1}."
        )
    return (after,)
