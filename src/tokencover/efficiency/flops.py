"""The FLOPs of a prefill: decoder layers, and the head that predicts the next token.

A multiplication and an addition count as two FLOPs, attention counts all pairs of tokens, and only
matrix products count, as in PyTorch's counter. A `FlopCounter` counts the vision encoder while it
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tokencover.budget import LayerCost
from tokencover.errors import InputError
from tokencover.families import compute_block_cost, family_of


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """FLOPs of a decoder with its head, which costs `head` per predicted position."""

    layer: LayerCost
    num_layers: int
    head: int

    def of(self, lengths: Sequence[int], predicted: int = 1) -> int:
        """Compute the FLOPs of one sample from the number of tokens in each layer.

        `predicted` is the number of positions for which the head runs; `generate` wants only the
        last.
        """
        if len(lengths) != self.num_layers:
            raise InputError(
                f"the decoder has {self.num_layers} layers, got {len(lengths)} lengths: pass one "
                "per layer."
            )
        return round(sum(map(self.layer.of, lengths))) + self.head * predicted


def compute_prefill_cost(model: Any) -> PrefillCost:
    """Compute the FLOPs of a loaded model's decoder and head from the shapes of their weights."""
    family = family_of(model)
    layers = family.layers(model)
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"Cannot compute the FLOPs of {type(model).__name__}: its head is a "
            f"{type(head).__name__}, not one linear layer."
        )
    block = compute_block_cost(layers, model.get_submodule(family.decoder).config)
    return PrefillCost(block, len(layers), head=2 * head.in_features * head.out_features)
