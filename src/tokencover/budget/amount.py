"""How many visual tokens to keep, and what that number means.

A budget is a count, or a fraction of the visual tokens (`tokens_to_keep`). A method that prunes
inside the decoder runs the first layers on all tokens, so "K tokens" can mean three things: K
remain in the end, layers process K on average, or the prefill costs as much as with K tokens in
every layer (`tokens_left`). Compare methods within one of these only. The cost of a layer follows
from its weights (`block_cost`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeGuard

from torch import nn

from tokencover.errors import BudgetError, InputError

Budget = int | float
"""An integer is a number of tokens, a float a fraction of them: 64, or 0.111."""

BudgetMode = Literal["exact", "layer_mean", "flops", "published"]
PublishedMode = Literal["exact", "layer_mean"]
"""What K counts in a paper."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """FLOPs of one decoder layer on a sequence of n tokens.

    A multiplication and an addition count as two; attention counts all n * n pairs, as PyTorch's
    own counter does.

    Attributes
    ----------
    linear : int or Fraction
        FLOPs per token: the projections and the feed-forward network.
    quadratic : int or Fraction
        FLOPs per pair of tokens: the attention.
    """

    linear: int | Fraction
    quadratic: int | Fraction

    def of(self, tokens: int) -> int | Fraction:
        """FLOPs on a sequence of this length."""
        return self.linear * tokens + self.quadratic * tokens * tokens


def block_cost(
    blocks: Sequence[nn.Module],
    *,
    active_experts: int | None = None,
    skipped_modules: Collection[str] = (),
) -> LayerCost:
    """FLOPs of one decoder layer; the mean, where layers differ.

    Each has a ``self_attn`` whose projections are linear layers, or wrap or replace such layers, as
    adapters and quantized layers do; or linear attention or a convolution, whose cost grows with
    the number of tokens only. `active_experts` is the number of experts that compute each token,
    and modules whose name has one of `skipped_modules` process no text tokens.
    """
    widths = [width for block in blocks if (width := _measure_products(block)) is not None]
    if len(widths) < len(blocks):
        kind = type(blocks[len(widths)]).__name__
        raise InputError(f"the cost of a {kind} is unknown: its attention has no q_proj.")
    weights = sum(_count_weights(block, active_experts, skipped_modules) for block in blocks)
    depth = len(blocks)
    return LayerCost(Fraction(2 * weights, depth), Fraction(2 * sum(widths), depth))


def _measure_products(block: nn.Module) -> int | None:
    """Width of queries times keys plus that of weights times values; None if unknown.

    Both are as wide as all query heads; a gate for each may be projected with them (Qwen3.5). In
    latent attention values have another width, and ``q_b_proj`` projects last to queries.
    """
    attention: Any = getattr(block, "self_attn", None)
    if attention is None and any(isinstance(part, nn.Conv1d) for part in block.modules()):
        return 0
    projections = [getattr(attention, name, None) for name in ("q_proj", "q_b_proj")]
    queries = next((layer for layer in projections if _is_linear(layer)), None)
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
    """How many weights of the layer's matrices a token is multiplied with."""
    total = 0
    for name, part in block.named_modules():
        if any(skipped in name for skipped in skipped_modules):
            continue
        if _is_linear(part):
            if is_innermost_linear(part):
                total += part.in_features * part.out_features
        elif type(part).__name__.endswith("Experts"):
            matrices = [weight for weight in part.parameters(recurse=False) if weight.dim() == 3]
            of_one = sum(matrix.shape[1] * matrix.shape[2] for matrix in matrices)
            if active_experts is None:
                raise InputError(
                    f"the cost of {type(part).__name__} is unknown: the configuration does not "
                    "have the number of experts per token."
                )
            total += active_experts * of_one
        elif type(part).__name__.endswith("Router"):
            total += sum(weight.numel() for weight in part.parameters(recurse=False))
        elif isinstance(part, nn.Conv1d):
            total += part.weight.numel()
        elif hasattr(part, "num_v_heads") and hasattr(part, "head_k_dim"):
            # The state of a head of linear attention is read, corrected and read again.
            total += 3 * int(part.num_v_heads * part.head_k_dim * part.head_v_dim)
    return total


def is_innermost_linear(part: nn.Module) -> TypeGuard[nn.Linear]:
    """Whether a module is a linear layer, plain or quantized, that wraps no other one."""
    return _is_linear(part) and not any(map(_is_linear, list(part.modules())[1:]))


def _is_linear(part: Any) -> TypeGuard[nn.Linear]:
    """Whether a module has the sizes of a linear layer."""
    sizes = (getattr(part, "in_features", None), getattr(part, "out_features", None))
    return isinstance(part, nn.Module) and all(isinstance(size, int) for size in sizes)


def tokens_to_keep(budget: Budget, total: int) -> int:
    """The number of tokens a budget means for an image of `total` tokens, at least 1.

    A count above `total` keeps all. A fraction in (0, 1] is rounded to the nearest count and keeps
    at least one token.
    """
    if total < 1:
        raise InputError(f"there are {total} visual tokens: skip samples without an image.")
    if isinstance(budget, bool) or not isinstance(budget, int | float):
        raise InputError(f"budget must be a count (int) or a fraction (float), got {budget!r}.")
    if isinstance(budget, int):
        if budget < 1:
            raise InputError(f"budget must keep at least 1 token, got {budget}.")
        return min(budget, total)
    if not 0 < budget <= 1:
        is_count = budget > 1 and budget.is_integer()
        hint = f"for {int(budget)} tokens write {int(budget)}" if is_count else "for example 0.111"
        raise InputError(f"budget {budget} as a float is a fraction in (0, 1]; {hint}.")
    return max(1, round_half_up(Fraction(budget) * total))


def round_half_up(value: Fraction) -> int:
    """The nearest integer, halves upwards."""
    return math.floor(value + Fraction(1, 2))


def resolve_mode(mode: BudgetMode, published: PublishedMode) -> BudgetMode:
    """The mode itself, or for "published" what the method's paper counts."""
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
    """How many visual tokens must remain in the end to meet a budget as closely as possible.

    Parameters
    ----------
    budget, mode : int or float, "exact", "layer_mean" or "flops"
        K, and what it counts: tokens that remain in the end, their mean per layer, or the tokens in
        every layer of a model whose prefill costs the same.
    total, others : int
        Visual tokens of the sample, and its other tokens, which every layer processes too.
    schedule : callable
        The visual tokens that each layer processes, for the number that remains in the end; must
        not fall when that number grows.
    cost : LayerCost
        Of one layer.

    Raises
    ------
    BudgetError
        If the layers before pruning alone exceed the budget; it names the smallest one possible.
    """
    wanted = tokens_to_keep(budget, total)
    if mode == "published":
        raise InputError("budget_mode='published' depends on the method: call resolve_mode first.")
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
            f"a budget of {wanted} tokens with budget_mode={mode!r} cannot be reached: keeping one "
            f"token after pruning already counts as {float(least):.1f}, so at least "
            f"{-(-least // 1)} are needed. Raise the budget, or prune at an earlier layer."
        )
    allowed = wanted if by_mean else cost.of(wanted + others)
    most = _bisect_last(total, lambda left: spend(left) <= allowed)
    above = min(most + 1, total)
    short, over = (count_tokens(spend(left)) for left in (most, above))
    return above if over - wanted < wanted - short else most


def _bisect_last(total: int, fits: Callable[[int], bool]) -> int:
    """The last of 1 ... `total` that fits; 1 does, and none after the first that does not."""
    low, high = 1, total
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _count_tokens_costing(spent: Fraction, others: int, cost: LayerCost) -> Fraction:
    """The number of visual tokens, interpolated, with which a layer costs this much."""
    low, high = 0, 1
    while cost.of(high + others) < spent:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cost.of(middle + others) >= spent else (middle, high)
    step = cost.of(high + others) - cost.of(low + others)
    return low + (spent - cost.of(low + others)) / step
