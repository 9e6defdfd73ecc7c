"""Methods that merge inside the vision tower, and removals that end exactly at the budget."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from tokencover.budget import Budget, tokens_to_keep
from tokencover.errors import InputError
from tokencover.methods.base import (
    BudgetedMethod,
    Choice,
    Positions,
    View,
    VisionMerge,
    VisionView,
)


@dataclass(frozen=True)
class TowerMethod(BudgetedMethod):
    """A method that does all its work between attention and feed-forward network of tower blocks.

    Parameters
    ----------
    budget : int or float
        K. A tower sees crops and not prompts, so a count is for each picture (image or video), and
        its crops (tiles or frames) share it evenly, rounded down: 64 tokens for a picture of 5
        crops keep 12 of each, 60 in all. The pictures of one call must then have equally many
        crops. A share is a share of each crop. Newline tokens, and class tokens where the model
        passes them on to its decoder, are not counted; what it cuts off a padded picture after the
        tower is missing from K.
    budget_mode : "exact", "layer_mean" or "flops"
        All the same here: every decoder block works on K tokens.
    positions : "reindex" or "original"
        Numbered anew without gaps, as after a shorter picture; or that of the first token of the
        picture that a kept one stands for. Either way this is their order too.
    """

    reads_prompt = False

    inside_vision_blocks = True

    positions: Positions = field(default="reindex", kw_only=True)

    @abstractmethod
    def vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int]:
        """The tower's blocks inside which the method merges; ascending."""

    @abstractmethod
    def plan_counts(self, total: int, left: int, blocks: int) -> list[int]:
        """Tokens of a crop after each of these blocks, from `total` down to `left` after the last.

        Raises
        ------
        InputError
            If the method cannot remove that many.
        """

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Never in the decoder."""
        return ()

    def choose(self, view: View) -> Choice:
        """Keep everything: the decoder is given merged tokens."""
        return Choice([torch.arange(count) for count in view.mask.sum(-1).tolist()])

    def schedule(self, num_kept: int, total: int, num_layers: int) -> list[int]:
        """`num_kept` tokens in every block."""
        return [num_kept] * num_layers

    def count_to_remove(self, view: VisionView) -> int:
        """How many tokens each crop must lose in this block; class tokens do not count."""
        blocks = list(self.vision_blocks(view.num_blocks, view.feature_block))
        total = view.grid[0] * view.grid[1]
        left = count_per_crop(self.budget, view.crops, total)
        after = self.plan_counts(total, left, len(blocks))[blocks.index(view.block)]
        return view.hidden_states.shape[1] - view.classes - after


def leave_unchanged(view: VisionView) -> VisionMerge:
    """Every token stays what it is, where it is."""
    crops, count, _ = view.hidden_states.shape
    groups = torch.arange(count, device=view.hidden_states.device).expand(crops, -1)
    return VisionMerge(groups, view.hidden_states)


def check_numbers(values: Tensor, view: VisionView) -> None:
    """Refuse to choose by what is not a number, ``(c, ...)``."""
    bad = values.isnan().flatten(1).any(1)
    if bool(bad.any()):
        raise InputError(
            f"in tower block {view.block} the scores of crop {int(bad.nonzero()[0])} are not "
            "numbers: look for NaN in the tower's states, a float16 overflow for instance."
        )


def count_per_crop(budget: Budget, crops: Sequence[int], total: int) -> int:
    """How many tokens each crop keeps.

    Parameters
    ----------
    budget : int or float
        K for each picture, or a share of each crop.
    crops : sequence of int
        How many crops each picture has.
    total : int
        Tokens of a crop.

    Raises
    ------
    InputError
        If a count cannot be shared evenly because pictures differ, or leaves crops with nothing.
    """
    if isinstance(budget, float):
        return tokens_to_keep(budget, total)
    if len(set(crops)) != 1:
        raise InputError(
            f"a budget of {budget} tokens for each picture gives crops of different lengths here, "
            f"because the pictures of this call have {', '.join(map(str, sorted(set(crops))))} "
            "crops: give a share of the tokens, for example "
            f"{budget / (total * max(crops)):.3f}, or one picture in a call."
        )
    (each,) = set(crops)
    if budget < each:
        raise InputError(
            f"a budget of {budget} tokens leaves nothing for some of the {each} crops of a "
            f"picture: give at least {each}."
        )
    return tokens_to_keep(budget // each, total)


def remove_evenly(total: int, left: int, blocks: int, inflect: float = 0.0) -> list[int]:
    """Tokens after each block if they are removed evenly, or along a straight line.

    With r = (total - left) / blocks the first block removes about r (1 - inflect), the last
    r (1 + inflect). What rounding down leaves over goes to the blocks that lost most by it, the
    earlier of two.

    Parameters
    ----------
    total, left : int
        Tokens before the first block and after the last.
    blocks : int
        Number of blocks, at least 1.
    inflect : float
        Between -1 (most in the first blocks) and 1 (most in the last).

    Returns
    -------
    list of int
        Never rising; the last is `left`.
    """
    return list(_remove_evenly(total, left, blocks, inflect))


@lru_cache(maxsize=256)
def _remove_evenly(total: int, left: int, blocks: int, inflect: float) -> tuple[int, ...]:
    mean = Fraction(total - left, blocks)
    slope = Fraction(inflect)
    exact = [
        mean * (1 + slope * (Fraction(2 * block, blocks - 1) - 1)) if blocks > 1 else mean
        for block in range(blocks)
    ]
    removed = [math.floor(each) for each in exact]
    by_loss = sorted(range(blocks), key=lambda block: (removed[block] - exact[block], block))
    for block in by_loss[: total - left - sum(removed)]:
        removed[block] += 1
    counts = []
    for each in removed:
        total -= each
        counts.append(total)
    return tuple(counts)


def limit_to_half(counts: Sequence[int], total: int) -> list[int]:
    """The counts, lowered so that no block removes more than half of what it is given.

    Blocks that would remove too much leave the rest to the ones before them; the last count stands.

    Parameters
    ----------
    counts : sequence of int
        Tokens after each block.
    total : int
        Tokens before the first.

    Raises
    ------
    InputError
        If halving in every block does not get there; it names how many tokens can be reached.
    """
    lowered = list(counts)
    for block in range(len(lowered) - 1, 0, -1):
        lowered[block - 1] = min(lowered[block - 1], 2 * lowered[block])
    if total > 2 * lowered[0]:
        smallest = -(-total // 2 ** len(lowered))
        raise InputError(
            f"{len(lowered)} tower blocks that each remove at most half of the tokens cannot bring "
            f"a crop of {total} tokens down to {lowered[-1]}: the smallest budget is {smallest} "
            f"tokens for each crop of a picture, or a share of {smallest / total:.4f}."
        )
    return lowered
