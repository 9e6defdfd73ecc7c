"""One forward pass: which positions are visual, which are words, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tokencover.families import Places
    from tokencover.pruning.attention import Recorded
    from tokencover.pruning.generation import Generation
    from tokencover.pruning.vision import Encodings


@dataclass(frozen=True, slots=True)
class Kept:
    """The positions that stay, row by row in their old order, aligned to the right.

    Attributes
    ----------
    index : Tensor
        ``(b, m)`` int64, places in the original sequence.
    valid : Tensor
        ``(b, m)`` bool; False in the slots that only fill up shorter rows.
    """

    index: Tensor
    valid: Tensor

    @classmethod
    def where(cls, keep: Tensor) -> Kept:
        """From a mask ``(b, s)`` of the positions that stay."""
        length = int(keep.sum(-1).max())
        # A stable sort of booleans moves what stays to the right without changing its order.
        index = keep.to(torch.uint8).argsort(dim=-1, stable=True)[:, keep.shape[1] - length :]
        return cls(index, keep.gather(1, index))

    def mask(self, length: int) -> Tensor:
        """``(b, length)`` bool, the positions that stay."""
        spare = torch.zeros(len(self.index), length + 1, dtype=torch.bool, device=self.index.device)
        return spare.scatter_(1, self._send_to_spare(length), True)[:, :length]

    def take(self, tensor: Tensor) -> Tensor:
        """Shorten dimension 1 of ``(b or 1, s, ...)``."""
        index = self.index.to(tensor.device)
        rows = torch.arange(len(index), device=tensor.device).unsqueeze(-1)
        return tensor.expand(len(index), *tensor.shape[1:])[rows, index]

    def put_back(self, states: Tensor, length: int) -> Tensor:
        """Spread ``(b, m, d)`` over the original length; zeros where a token was dropped."""
        index = self._send_to_spare(length).to(states.device).unsqueeze(-1)
        full = states.new_zeros(len(states), length + 1, states.shape[-1])
        return full.scatter(1, index.expand_as(states), states)[:, :length]

    def within(self, earlier: Kept, length: int) -> Kept:
        """The same positions, as places in a sequence that `earlier` shortened before."""
        places = torch.arange(earlier.index.shape[1], device=self.index.device)
        slots = torch.zeros(len(self.index), length + 1, dtype=torch.int64, device=places.device)
        slots.scatter_(1, earlier._send_to_spare(length), places.expand_as(earlier.index))
        return Kept(slots.gather(1, self.index), self.valid)

    def ends_in(self, count: int, length: int) -> bool:
        """Whether the last `count` slots of every row are the last tokens of the sequence."""
        index, valid = self.index[:, -count:], self.valid[:, -count:]
        last = torch.arange(length - count, length, device=index.device)
        return index.shape[1] == count and bool((valid & (index == last)).all())

    def find_end_of_dropped(self, real: Tensor) -> int:
        """Where the last of the tokens ``(b, s)`` that were dropped ends, in any row."""
        dropped = (real & ~self.mask(real.shape[1])).any(0).nonzero()
        return int(dropped.max()) + 1 if len(dropped) else 0

    def _send_to_spare(self, length: int) -> Tensor:
        """Places in the original sequence, with filling slots sent to one spare place after it."""
        return self.index.masked_fill(~self.valid, length)


def pack_left(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Places of the True entries of each row, filled up from the left, and which of them count."""
    length = int(mask.sum(-1).max()) if mask.numel() else 0
    index = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)[:, :length]
    return index, mask.gather(1, index)


@dataclass(slots=True, weakref_slot=True, eq=False)
class ForwardPass:
    """What the runtime knows while a batch goes through the model.

    Attributes
    ----------
    real : Tensor
        ``(b, s)`` bool, which of the new tokens are not padding.
    past : Tensor or None
        ``(b, p)`` bool, the same for tokens of earlier passes, None if nothing is known of them.
    kept : dict
        For each pruning block that was reached, what is left; None if nothing was dropped there.
    masks : dict
        The mask of each group of blocks, for each kind of block in it.
    columns : dict
        ``(b, cached + new)`` bool, which earlier and new tokens are real in each group of blocks.
    origins : dict
        ``(b, cached + new)`` int64, where they stand in the whole text; only for models whose masks
        are cut from those of the whole text.
    rotations : dict
        The rotation table of each group of blocks, where positions are numbered anew.
    before : int
        How many tokens the text had before this pass, dropped ones too.
    block : int
        The block that began last.
    cache : Any
        The cache that it was handed.
    cut_from : int or None
        The first block that the decoder itself gives inputs which are cut already (Gemma 4).
    """

    real: Tensor
    past: Tensor | None = None
    before: int = 0
    block: int = -1
    cache: Any = None
    cut_from: int | None = None
    kept: dict[int, Kept | None] = field(default_factory=dict)
    masks: dict[tuple[int | None, str], Any] = field(default_factory=dict)
    columns: dict[int, Tensor] = field(default_factory=dict)
    origins: dict[int, Tensor] = field(default_factory=dict)
    rotations: dict[int, Any] = field(default_factory=dict)

    @property
    def has_visual(self) -> bool:
        """Whether the pass brings visual tokens."""
        return False

    @property
    def length(self) -> int:
        """Number of new tokens in a row."""
        return self.real.shape[1]

    def find_left(self, block: int) -> Kept | None:
        """What is left when this block begins; None if nothing was dropped before."""
        left = None
        for stage in sorted(self.kept):
            if stage <= block and self.kept[stage] is not None:
                left = self.kept[stage]
        return left


@dataclass(slots=True, kw_only=True, eq=False)
class VisualPass(ForwardPass):
    """A pass that brings visual tokens.

    Attributes
    ----------
    visual : Tensor
        ``(b, s)`` bool, the visual tokens.
    prompt : Tensor
        ``(b, s)`` bool, the prompt words.
    used : Tensor
        ``(b, s)`` bool, the tokens whose logits are used; they always stay.
    find_places : callable
        Tells where the visual tokens lie in their pictures, once these were encoded.
    recorded : dict
        What was recorded of each watched block, until the pass ends.
    encodings : Encodings or None
        What the vision tower computed, once the method has looked at it and until the pass ends.
    entered : Tensor or None
        ``(b, s, d)``, the states before the first block, if the method is to be shown the visual
        tokens there, and until the pass ends.
    sources : Tensor or None
        ``(b, s)`` int64, the place whose state each place holds, if a method moved states; -1 for
        a state that was none of them.
    seconds : float
        Time the method took so far.
    notes : dict
        What the method wrote down for its later places.
    generation : Generation or None
        The generation without a cache that the pass is a step of.
    has_both_directions : bool
        Whether tokens of one image attend to each other in both directions, which masks must say.
    """

    visual: Tensor
    prompt: Tensor
    used: Tensor
    find_places: Callable[[], Places]
    recorded: dict[int, Recorded] = field(default_factory=dict)
    encodings: Encodings | None = None
    entered: Tensor | None = None
    sources: Tensor | None = None
    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    generation: Generation | None = None
    has_both_directions: bool = False
    _places: Places | None = None

    @property
    def has_visual(self) -> bool:
        """Whether the pass brings visual tokens."""
        return True

    @property
    def places(self) -> Places:
        """Where the visual tokens lie in their pictures; asked for at the decoder's blocks."""
        if self._places is None:
            self._places = self.find_places()
        return self._places
