"""What a method is: data in, data out.

A method never touches a model. The runtime calls `Method.choose` once for each place where the
method acts, with a `View` of the whole batch, and drops what was not kept. `view.py` says what a
method sees.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from tokencover.budget import (
    Budget,
    BudgetMode,
    PublishedMode,
    check_mode,
    resolve_mode,
    tokens_left,
    tokens_to_keep,
)
from tokencover.errors import InputError
from tokencover.methods.card import Card, Objective
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
"""What kept tokens are to later blocks: where they were, or numbered anew without gaps."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a method keeps.

    Attributes
    ----------
    kept : sequence of Tensor
        For each sample, indices into its visual tokens of the view; order does not matter.
    hidden_states : Tensor, optional
        ``(b, n, d)``, for methods that merge what they drop; only those of kept tokens are read.
    sources : sequence of Tensor, optional
        For methods that write a token's state to another token's slot: for each sample, for each
        kept index in ascending order, the visual token that it holds now, -1 if it is none of them.
        The trace then tells where those lie in the picture.
    details : sequence of Mapping
        What is worth telling about each sample; it becomes part of the trace. What costs something
        and may never be read can be a `LazyValue`, in a `Details`.
    """

    kept: Sequence[Tensor]
    hidden_states: Tensor | None = None
    sources: Sequence[Tensor] | None = None
    details: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def mask_like(self, mask: Tensor) -> Tensor:
        """The kept tokens as a mask of this shape."""
        kept = torch.zeros_like(mask)
        for sample, index in enumerate(self.kept):
            kept[sample, index.to(mask.device)] = True
        return kept


class LazyValue:
    """A value that is computed when it is first asked for, by calling this.

    A trace may live long: give it copies of the few tensors that it needs, without their history.
    It lets go of them when it has the value. A pickle, or a deep copy, is of the value.

    Parameters
    ----------
    compute : callable
        Gives the value of the arguments.
    *arguments
        What it needs.
    """

    __slots__ = ("_compute", "_value")

    def __init__(self, compute: Callable[..., Any], *arguments: Any) -> None:
        self._compute: Callable[[], Any] | None = partial(compute, *arguments)
        self._value: Any = None

    def __call__(self) -> Any:
        """Give the value."""
        compute = self._compute
        if compute is not None:
            self._value = compute()
            self._compute = None
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return read_value, (self(),)


class Details(dict[str, Any]):
    """What is told about one sample, by name; a `LazyValue` among it reads as its value.

    A copy by ``dict(details)`` or ``{**details}`` reads nothing: it has the same `LazyValue`.
    """

    def __getitem__(self, name: str) -> Any:
        return read_value(super().__getitem__(name))

    def get(self, name: str, default: Any = None) -> Any:
        """The value of that name, or the default."""
        return read_value(super().get(name, default))

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Names and values."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Values, computed all of them."""
        return ValuesView(self)


class Told(Mapping[str, Any]):
    """What a method told, to be read only; what it left for later is computed when it is read.

    Parameters
    ----------
    told : Mapping
        By name; some values may be a `LazyValue`.
    """

    __slots__ = ("_told",)

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = Details(told)

    def __getitem__(self, name: str) -> Any:
        return self._told[name]

    def __contains__(self, name: object) -> bool:
        return name in self._told

    def __iter__(self) -> Iterator[str]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"


def read_value(value: Any) -> Any:
    """The value itself, or what a `LazyValue` computes."""
    return value() if isinstance(value, LazyValue) else value


@dataclass(frozen=True, slots=True)
class VisionMerge:
    """How a method merges tokens inside a vision tower.

    Attributes
    ----------
    groups : Tensor
        ``(c, n)`` int64, which of the new tokens ``0 .. m-1`` each token becomes part of. Every
        new token has a member in every crop, so all crops stay of one length.
    hidden_states : Tensor
        ``(c, m, d)``, states of the new tokens.
    """

    groups: Tensor
    hidden_states: Tensor


class Method(ABC):
    """A rule that chooses visual tokens."""

    name: ClassVar[str] = ""
    """What `get_method` and the command line call it."""
    card: ClassVar[Card]
    """Its row in the table of methods."""
    added_later: ClassVar[tuple[str, ...]] = ()
    """Settings that saved results of earlier versions do not have."""

    positions: Positions = "original"
    """What positions kept tokens have in later blocks."""
    drops_newlines: bool = False
    """Whether newline tokens are shown, and may be dropped; otherwise they always stay."""
    reads_prompt: bool = True
    """Whether `choose` looks at the prompt words; if not, no tokenizer is needed to find them."""
    looks_ahead: bool = False
    """Whether `choose` asks for attention in blocks that have not run yet, by `View.ahead`."""
    merges: bool = False
    """Whether `choose` returns new states; only then gradients flow through it."""
    inside_vision_blocks: bool = False
    """Whether `merge_in_vision_encoder` acts between the attention and the feed-forward network of
    a vision-encoder block, instead of before it."""
    proportional_attention: bool = False
    """Whether later tower blocks attend to a merged token as to all the tokens it stands for."""

    @abstractmethod
    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """The decoder blocks before which the method acts, given their number; ascending."""

    @abstractmethod
    def choose(self, view: View) -> Choice:
        """Choose the tokens to keep."""

    def shows_newlines(self, layer_idx: int, num_layers: int) -> bool:
        """Whether newline tokens are shown, and may be dropped, before this decoder block."""
        return self.drops_newlines

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """The decoder blocks whose keys or attention rows `choose` will ask for."""
        return ()

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        """The vision tower's blocks whose queries and keys `choose` will ask for.

        Parameters
        ----------
        num_blocks : int
            Number of the tower's blocks.
        feature_block : int
            The block whose output becomes visual tokens.

        Returns
        -------
        sequence of int or None
            None if the method needs nothing of the tower; an empty sequence if only its features.
        """
        return None

    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The vision tower's blocks before (or inside) which the method merges; ascending."""
        return ()

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        """Merge tokens before, or inside, a block of the vision tower."""
        raise NotImplementedError(
            f"{type(self).__name__} names tower blocks but has no merge_in_vision_encoder"
        )


@dataclass(frozen=True)
class BudgetedMethod(Method):
    """A method with the one budget that all methods share.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are.
    budget_mode : "exact", "layer_mean", "flops" or "published"
        Whether K tokens are left in the end, or blocks work on K on average, or the prefill costs
        what it would with K tokens in every block; or whichever K is in the method's own paper.
    positions : "original" or "reindex"
        Whether kept tokens keep their positions or are numbered anew without gaps.
    """

    published_mode: ClassVar[PublishedMode] = "exact"

    budget: Budget
    budget_mode: BudgetMode = field(default="exact", kw_only=True)
    positions: Positions = field(default="original", kw_only=True)

    def __post_init__(self) -> None:
        tokens_to_keep(self.budget, total=1)
        check_mode(self.budget_mode)
        if self.positions not in get_args(Positions):
            raise InputError(f"positions must be 'original' or 'reindex', got {self.positions!r}.")

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """Return the number of visual tokens each decoder layer processes, `num_kept` at the end.

        Methods that act several times have their own. It never falls when `num_kept` grows.
        """
        first, *more = self.pruning_layers(num_layers)
        if more:
            raise NotImplementedError(f"{type(self).__name__} acts several times: override this")
        return [total] * first + [num_kept] * (num_layers - first)

    def num_kept(self, view: View) -> list[int]:
        """How many visual tokens of each sample must be left in the end."""
        samples = list(zip(view.total.tolist(), view.others.tolist(), strict=True))
        found = {
            (total, others): tokens_left(
                self.budget,
                resolve_mode(self.budget_mode, self.published_mode),
                total=total,
                others=others,
                schedule=lambda left, total=total: self.schedule(left, total, view.num_layers),  # type: ignore[misc]
                cost=view.cost,
            )
            for total, others in set(samples)  # in a batch they are often alike
        }
        return [found[sample] for sample in samples]

    def count_here(self, view: View) -> list[int]:
        """How many visual tokens of each sample the block about to run works on."""
        return [
            self.schedule(left, total, view.num_layers)[view.layer_idx]
            for left, total in zip(self.num_kept(view), view.total.tolist(), strict=True)
        ]


class ActsOnce(BudgetedMethod):
    """A method that prunes once, before the block that follows the first `after` ones.

    A subclass has `after` among its fields, ``after: int = 1``; here it is checked.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning; 0 is before the decoder.
    """

    after: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.after, bool) or not isinstance(self.after, int) or self.after < 0:
            raise InputError(f"after must be a number of blocks, 0 or more, got {self.after!r}.")

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the block that follows the first `after` ones."""
        return validate_layer_idx(self.after, num_layers)


@dataclass(frozen=True)
class BeforeDecoder(BudgetedMethod):
    """A method whose tokens are all the decoder ever gets, so they have no gaps by default."""

    positions: Positions = field(default="reindex", kw_only=True)

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the decoder."""
        return (0,)


def validate_layer_idx(after: int, depth: int) -> tuple[int]:
    """The block that follows the first `after` ones; refused if there is none."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < depth:
        raise InputError(
            f"after={after!r} leaves no block to prune for: this model has {depth} blocks, so give "
            f"0 to {depth - 1}."
        )
    return (after,)
