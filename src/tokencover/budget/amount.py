"""How many visual tokens to keep, and what that number means.

A budget is a count, or a share of the tokens there are (`tokens_to_keep`). A method that acts
inside the decoder works on all tokens in its first blocks, so "K tokens" can mean three things: K
are left in the end, blocks work on K on average, or the prefill costs what it would cost with K
tokens in every block (`tokens_left`). Comparisons between methods are fair only within one. What a
block costs is read off its weights (`block_cost`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeGuard, get_args

from torch import nn

from tokencover.errors import BudgetError, InputError

Budget = int | float
"""An integer is a number of tokens, a float a share of them: 64, or 0.111."""

BudgetMode = Literal["exact", "layer_mean", "flops", "published"]
PublishedMode = Literal["exact", "layer_mean"]
"""What a paper's K may count."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """Floating-point operations of one decoder block on a sequence of n tokens.

    A multiplication and an addition count as two operations; attention counts all n * n pairs, as
    PyTorch's own counter does.

    Attributes
    ----------
    linear : int or Fraction
        Operations for each token: the projections and the feed-forward network.
    quadratic : int or Fraction
        Operations for each pair of tokens: the attention.
    """

    linear: int | Fraction
    quadratic: int | Fraction

    def of(self, tokens: int) -> int | Fraction:
        """Operations on a sequence of this length."""
        return self.linear * tokens + self.quadratic * tokens * tokens


def block_cost(
    blocks: Sequence[nn.Module],
    *,
    active_experts: int | None = None,
    skipped_modules: Collection[str] = (),
) -> LayerCost:
    """Operations of one decoder block; the mean, where blocks differ.

    Parameters
    ----------
    blocks : sequence of nn.Module
        Each with a ``self_attn`` whose projections are linear layers, or wrap or replace ones, as
        adapters and quantised layers do; or with linear attention or a convolution instead, whose
        cost grows with the number of tokens only.
    active_experts : int, optional
        How many experts compute each token, if there are experts.
    skipped_modules : collection of str
        Parts of the names of modules that text tokens do not pass.
    """
    widths = [width for block in blocks if (width := _count_products(block)) is not None]
    if len(widths) < len(blocks):
        kind = type(blocks[len(widths)]).__name__
        raise InputError(f"the cost of a {kind} is not known: its attention has no q_proj.")
    weights = sum(_count_weights(block, active_experts, skipped_modules) for block in blocks)
    depth = len(blocks)
    return LayerCost(Fraction(2 * weights, depth), Fraction(2 * sum(widths), depth))


def _count_products(block: nn.Module) -> int | None:
    """How wide queries times keys and weights times values are together; None if not known.

    Both are as wide as all query heads; a gate for each may be projected with them (Qwen3.5). In
    latent attention values have a width of their own, and what is projected last to queries is
    ``q_b_proj``.
    """
    attention: Any = getattr(block, "self_attn", None)
    if attention is None and any(isinstance(part, nn.Conv1d) for part in block.modules()):
        return 0
    found = [getattr(attention, name, None) for name in ("q_proj", "q_b_proj")]
    queries = next((each for each in found if _is_linear(each)), None)
    if queries is None:
        return None
    if not hasattr(attention, "kv_b_proj"):
        output = getattr(attention, "o_proj", None)
        gated = _is_linear(output) and queries.out_features == 2 * output.in_features
        return queries.out_features if gated else 2 * queries.out_features
    return queries.out_features + int(attention.num_heads * attention.v_head_dim)


def _count_weights(
    block: nn.Module, active_experts: int | None, skipped_modules: Collection[str]
) -> int:
    """How many weights a token is multiplied with in the block's matrices."""
    total = 0
    for name, part in block.named_modules():
        if any(skipped in name for skipped in skipped_modules):
            continue
        if _is_linear(part):
            if is_innermost_linear(part):
                total += part.in_features * part.out_features
        elif type(part).__name__.endswith("Experts"):
            matrices = [each for each in part.parameters(recurse=False) if each.dim() == 3]
            of_one = sum(each.shape[1] * each.shape[2] for each in matrices)
            if active_experts is None:
                raise InputError(
                    f"the cost of {type(part).__name__} is not known: the configuration does not "
                    "have the number of experts per token."
                )
            total += active_experts * of_one
        elif type(part).__name__.endswith("Router"):
            total += sum(each.numel() for each in part.parameters(recurse=False))
        elif isinstance(part, nn.Conv1d):
            total += part.weight.numel()
        elif hasattr(part, "num_v_heads") and hasattr(part, "head_k_dim"):
            # The state of a head of linear attention is read, corrected and read again.
            total += 3 * int(part.num_v_heads * part.head_k_dim * part.head_v_dim)
    return total


def is_innermost_linear(part: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module works like a linear layer, plain or quantized, and wraps no other one."""
    return _is_linear(part) and not any(map(_is_linear, list(part.modules())[1:]))


def _is_linear(part: Any) -> TypeGuard[nn.Linear]:
    """Whether a module is a linear layer or says that it works like one."""
    sizes = (getattr(part, "in_features", None), getattr(part, "out_features", None))
    return isinstance(part, nn.Module) and all(isinstance(size, int) for size in sizes)


def tokens_to_keep(budget: Budget, total: int) -> int:
    """The number of tokens a budget means for a picture of `total` tokens.

    Parameters
    ----------
    budget : int or float
        Count of at least 1, or share in (0, 1]. A count above `total` keeps all; a share keeps at
        least one token and rounds to the nearest count.
    total : int
        Number of visual tokens, at least 1.
    """
    if total < 1:
        raise InputError(f"there are {total} visual tokens: skip samples without a picture.")
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise InputError(f"budget must be a count (int) or a share (float), got {budget!r}.")
    if isinstance(budget, int):
        if budget < 1:
            raise InputError(f"budget must keep at least 1 token, got {budget}.")
        return min(budget, total)
    if not 0 < budget <= 1:
        is_count = budget > 1 and budget.is_integer()
        hint = f"for {int(budget)} tokens write {int(budget)}" if is_count else "for example 0.111"
        raise InputError(f"budget {budget} as a float is a share in (0, 1]; {hint}.")
    return max(1, round_half_up(Fraction(budget) * total))


def round_half_up(value: Fraction) -> int:
    """The nearest integer, halves upwards."""
    return math.floor(value + Fraction(1, 2))


def check_mode(mode: str) -> None:
    """Refuse what is not a budget mode."""
    if mode not in get_args(BudgetMode):
        raise InputError(
            f"budget_mode must be one of {', '.join(map(repr, get_args(BudgetMode)))}, got {mode!r}"
        )


def resolve_mode(mode: BudgetMode, published: PublishedMode) -> BudgetMode:
    """What a budget counts, if "published" is what a method's own rows in papers count."""
    return published if mode == "published" else mode


def tokens_left(
    budget: Budget,
    mode: BudgetMode,
    *,
    total: int,
    others: int,
    schedule: Callable[[int], Sequence[int]],
    cost: LayerCost,
) -> int:
    """How many visual tokens must be left in the end to meet a budget as nearly as possible.

    Parameters
    ----------
    budget : int or float
        K, a count or a share of `total`.
    mode : "exact", "layer_mean" or "flops"
        What K counts: tokens left in the end, the mean over blocks, or the tokens in every block of
        a model whose prefill costs the same.
    total : int
        Visual tokens of the sample.
    others : int
        Its other tokens, which every block works on too.
    schedule : callable
        The visual tokens that each block works on, for the number left in the end; never falling
        when that number grows.
    cost : LayerCost
        Of one block.

    Raises
    ------
    BudgetError
        If the blocks before pruning alone exceed the budget; it names the smallest one possible.
    """
    wanted = tokens_to_keep(budget, total)
    if mode == "published":
        raise InputError("budget_mode='published' means another one for each method: resolve it.")
    if mode == "exact":
        return wanted
    by_mean = mode == "layer_mean"

    def spend(left: int) -> Fraction:
        present = schedule(left)
        if by_mean:
            return Fraction(sum(present), len(present))
        spent = sum(blocks * cost.of(count + others) for count, blocks in Counter(present).items())
        return Fraction(spent, len(present))

    def count_tokens(spent: Fraction) -> Fraction:
        return spent if by_mean else _count_tokens_costing(spent, others, cost)

    if (least := count_tokens(spend(1))) > wanted:
        raise BudgetError(
            f"a budget of {wanted} tokens with budget_mode={mode!r} cannot be reached: with one "
            f"token left after pruning it is still {float(least):.1f}, so at least "
            f"{-(-least // 1)} are needed. Raise the budget, or prune before an earlier block."
        )
    allowed = wanted if by_mean else cost.of(wanted + others)
    most = _find_last(total, lambda left: spend(left) <= allowed)
    above = min(most + 1, total)
    short, over = (count_tokens(spend(left)) for left in (most, above))
    return above if over - wanted < wanted - short else most


def _find_last(total: int, fits: Callable[[int], bool]) -> int:
    """The last of 1 ... `total` that fits; the first does, and behind one that does not none."""
    low, high = 1, total
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _count_tokens_costing(spent: Fraction, others: int, cost: LayerCost) -> Fraction:
    """The visual tokens, between two whole numbers if need be, with which a block costs this."""
    low, high = 0, 1
    while cost.of(high + others) < spent:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cost.of(middle + others) >= spent else (middle, high)
    step = cost.of(high + others) - cost.of(low + others)
    return low + (spent - cost.of(low + others)) / step
