"""What a model's decoder blocks cost, read off their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from tokencover.budget import BlockCost
from tokencover.errors import InputError


def block_cost(blocks: Sequence[nn.Module], config: Any) -> BlockCost:
    """Operations of one decoder block; the mean, where blocks differ.

    Parameters
    ----------
    blocks : sequence of nn.Module
        Each with a ``self_attn`` whose projections are linear layers.
    config : Any
        The decoder's; says how many experts work on a token, if there are experts.
    """
    queries = [getattr(getattr(block, "self_attn", None), "q_proj", None) for block in blocks]
    widths = [each.out_features for each in queries if isinstance(each, nn.Linear)]
    if len(widths) < len(blocks):
        kind = type(blocks[len(widths)]).__name__
        raise InputError(f"the cost of a {kind} is not known: its attention has no q_proj.")
    weights = sum(_count_weights(block, config) for block in blocks)
    # Two products, queries with keys and weights with values, each as wide as all query heads.
    return BlockCost(
        linear=2 * weights // len(blocks), quadratic=2 * 2 * sum(widths) // len(blocks)
    )


def _count_weights(block: nn.Module, config: Any) -> int:
    """How many weights a token is multiplied with in the block's matrices."""
    total = 0
    for part in block.modules():
        if isinstance(part, nn.Linear):
            total += part.in_features * part.out_features
        elif type(part).__name__.endswith("Experts"):
            matrices = [each for each in part.parameters(recurse=False) if each.dim() == 3]
            of_one = sum(each.shape[1] * each.shape[2] for each in matrices)
            total += config.num_experts_per_tok * of_one
        elif type(part).__name__.endswith("Router"):
            total += sum(each.numel() for each in part.parameters(recurse=False))
    return total
