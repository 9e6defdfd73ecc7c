"""A mask for decoders that were given none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tokencover.families import Family
from tokencover.pruning.passes import Pass


def give_mask(
    family: Family,
    get_pass: Callable[[], Pass | None],
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Say that no token is padding, before a decoder with positions of several axes.

    Without mask and cache transformers looks for packed documents in the positions. Those of a
    picture (Cosmos 3 Edge: its times) look like many of them, each hidden from the others: blocks
    before the first stage would see that mask, and those after it one that is whole.
    """
    current = get_pass()
    if not family.several_axes or current is None or not current.tokens.has_visual:
        return None
    if any(kwargs.get(name) is not None for name in ("attention_mask", "past_key_values")):
        return None
    states = kwargs.get("inputs_embeds")
    if states is None:
        return None
    return args, {**kwargs, "attention_mask": states.new_ones(states.shape[:2], dtype=torch.int64)}
