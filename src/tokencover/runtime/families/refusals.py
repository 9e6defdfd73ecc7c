"""Why a model cannot be pruned exactly, read from its configuration and its modules.

Dropping a token is the same as hiding it only where every block attends to all tokens before it.
A window counts positions in the shortened sequence, so it would see other tokens than it should;
that stays invisible while the prompt is shorter than the window, so the configuration decides.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

from tokencover.runtime.family import Family

FULL = "full_attention"
WHY = "but pruning is exact only where every block attends to all tokens before it"
CROSS_SETTINGS = (
    "is_encoder_decoder",
    "add_cross_attention",
    "cross_attention_layers",
    "cross_layer_interval",
)


def attention_reason(config: Any) -> str | None:
    """Say what in the attention of the text stack forbids pruning, None if nothing does."""
    text = getattr(config, "text_config", None) or config
    return (
        _cross_attention(config)
        or _cross_attention(text)
        or _not_causal(config)
        or _not_causal(text)
        or _not_full(text)
    )


def structure_reason(family: Family, model: nn.Module) -> str | None:
    """Say which module of the family the model lacks, None if all are there."""
    paths = (family.base, f"{family.decoder}.layers", *family.towers, family.projector)
    for path in paths:
        try:
            model.get_submodule(path)
        except AttributeError:
            return (
                f"it has no module {path!r}; load the whole model with its language-model head, "
                f"take it out of any wrapper, and see that its text stack is one this family knows"
            )
    return None


def _cross_attention(config: Any) -> str | None:
    for name in CROSS_SETTINGS:
        if value := getattr(config, name, None):
            return (
                f"{name} is {value!r}: its text reads the picture through cross-attention, so there"
                f" are no visual tokens in the sequence to drop"
            )
    return None


def _not_causal(config: Any) -> str | None:
    for name, causal in (("is_causal", True), ("use_bidirectional_attention", False)):
        value = getattr(config, name, None)
        if value is not None and bool(value) is not causal:
            return f"{name} is {value!r}: its attention is not causal"
    return None


def _not_full(text: Any) -> str | None:
    types = getattr(text, "layer_types", None)
    if types:
        others = Counter(kind for kind in types if kind != FULL)
        found = ", ".join(f"{kind!r} in {count}" for kind, count in others.items())
        return f"layer_types has {found} of {len(types)} blocks, {WHY}" if others else None
    window = getattr(text, "sliding_window", None)
    return None if window is None else f"sliding_window is {window!r}, {WHY}"
