"""What a method may see, and what it returns.

A method is data in, data out: it never touches a model. The runtime calls `Method.choose` once for
each place where the method acts, with a `View` of the whole batch, and drops what was not kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class View:
    """The tokens of a batch at one place. Only samples that have visual tokens are shown.

    Shapes: ``b`` samples, ``n`` visual tokens of the largest, ``l`` prompt words of the longest,
    ``s`` tokens of the whole sequence. Rows are filled from the left; the masks say how far.

    Attributes
    ----------
    block : int
        The decoder block about to run; 0 is before the decoder.
    depth : int
        Number of decoder blocks.
    states : Tensor
        ``(b, n, d)``, states of the visual tokens that may be dropped.
    mask : Tensor
        ``(b, n)`` bool, which of them exist.
    prompt : Tensor
        ``(b, l, d)``, states of the prompt words.
    prompt_mask : Tensor
        ``(b, l)`` bool.
    prompt_positions : Tensor
        ``(b, l)`` int64, place of each prompt word in the whole sequence; -1 where there is none.
    last : Tensor
        ``(b,)`` int64, place of the last token of each sample: the row that predicts the answer.
    positions : Tensor
        ``(b, n)`` int64, place of each visual token in the whole sequence.
    total : Tensor
        ``(b,)`` int64, number of visual tokens before anything was dropped.
    medium, frame, row, column, kind : Tensor
        ``(b, n)`` int64: which image or video of the sample, and where in it (see
        `tokencover.runtime.layout`); -1 where a token has no place.
    video : Tensor
        ``(b, n)`` bool, whether the token belongs to a video.
    keys : callable
        Gives ``(b, kv_heads, n, head_dim)``, the keys of the visual tokens in a block that has
        run, before their rotation; its argument is the block's number.
    attention : callable
        ``attention(block, queries)`` gives ``(b, heads, q, n)``: the attention weights that a block
        which has run gave the visual tokens, for chosen query rows only, float32. `queries` is
        ``(b, q)`` int64, places in the whole sequence; -1 for no row gives zeros. The softmax is
        over everything the row can see, tokens in the cache included.
    """

    block: int
    depth: int
    states: Tensor
    mask: Tensor
    prompt: Tensor
    prompt_mask: Tensor
    prompt_positions: Tensor
    last: Tensor
    positions: Tensor
    total: Tensor
    medium: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    kind: Tensor
    video: Tensor
    keys: Callable[[int], Tensor]
    attention: Callable[[int, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a method keeps.

    Attributes
    ----------
    kept : sequence of Tensor
        For each sample, indices into its visual tokens of the view; order does not matter.
    states : Tensor, optional
        ``(b, n, d)``, new states of the visual tokens, for methods that merge what they drop.
    details : sequence of Mapping
        What is worth telling about each sample; it becomes part of the trace.
    """

    kept: Sequence[Tensor]
    states: Tensor | None = None
    details: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def mask_like(self, mask: Tensor) -> Tensor:
        """The kept tokens as a mask of this shape."""
        kept = torch.zeros_like(mask)
        for sample, index in enumerate(self.kept):
            kept[sample, index.to(mask.device)] = True
        return kept


@dataclass(frozen=True, slots=True)
class TowerView:
    """The tokens inside a vision tower, before one of its blocks.

    Shapes: ``c`` crops (images, tiles or frames of the whole batch), ``n`` tokens of each, all
    crops alike. The prompt is not known here.

    Attributes
    ----------
    block : int
        The tower block about to run.
    depth : int
        Number of tower blocks.
    states : Tensor
        ``(c, n, d)``, class tokens first.
    classes : int
        How many class tokens stand before the others; they must stay alone and first.
    sizes : Tensor
        ``(c, n)`` int64, how many of the tower's first tokens each one stands for.
    keys : callable
        Gives ``(c, heads, n, head_dim)``, the keys of the block that has just run; there are none
        before block 0.
    """

    block: int
    depth: int
    states: Tensor
    classes: int
    sizes: Tensor
    keys: Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class TowerChoice:
    """How a method merges tokens inside a vision tower.

    Attributes
    ----------
    groups : Tensor
        ``(c, n)`` int64, which of the new tokens ``0 .. m-1`` each token becomes part of. Every
        new token has a member in every crop, so all crops stay of one length.
    states : Tensor
        ``(c, m, d)``, states of the new tokens.
    """

    groups: Tensor
    states: Tensor


class Method(ABC):
    """A rule that chooses visual tokens."""

    drops_newlines: bool = False
    """Whether newline tokens are shown, and may be dropped; otherwise they always stay."""
    merges: bool = False
    """Whether `choose` returns new states; only then gradients flow through it."""
    proportional_attention: bool = False
    """Whether later tower blocks attend to a merged token as to all the tokens it stands for."""

    @abstractmethod
    def blocks(self, depth: int) -> Sequence[int]:
        """The decoder blocks before which the method acts, given their number; ascending."""

    @abstractmethod
    def choose(self, view: View) -> Choice:
        """Choose the tokens to keep."""

    def watched(self, depth: int) -> Sequence[int]:
        """The blocks whose keys or attention rows `choose` will ask for."""
        return ()

    def tower_blocks(self, depth: int) -> Sequence[int]:
        """The vision tower's blocks before which the method merges tokens; ascending."""
        return ()

    def choose_in_tower(self, view: TowerView) -> TowerChoice:
        """Merge tokens before a block of the vision tower."""
        raise NotImplementedError(
            f"{type(self).__name__} names tower blocks but has no choose_in_tower"
        )
