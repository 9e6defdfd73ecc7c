"""What a prefill costs: decoder blocks, and the head that predicts the next word.

A multiplication and an addition count as two operations, attention counts all pairs of tokens, and
only matrix products count, all as in PyTorch's own counter. The vision tower is not part of it: its
operations are counted while it runs, by an `OperationCounter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from torch import nn

from tokencover.budget import LayerCost
from tokencover.errors import InputError
from tokencover.families import compute_block_cost, family_of


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """Operations of a decoder with its head.

    Attributes
    ----------
    block : LayerCost
        Of one block.
    depth : int
        Number of blocks.
    head : int
        Operations of the head for each position that it predicts the next word of.
    """

    block: LayerCost
    depth: int
    head: int

    def of(self, lengths: Sequence[int], predicted: int = 1) -> int:
        """Operations for one sample.

        Parameters
        ----------
        lengths : sequence of int
            The tokens, visual and others, that each block works on.
        predicted : int
            For how many positions the head runs; `generate` wants only the last.
        """
        if len(lengths) != self.depth:
            raise InputError(
                f"the decoder has {self.depth} blocks, got {len(lengths)} lengths: give one for "
                "each block."
            )
        return round(sum(map(self.block.of, lengths))) + self.head * predicted


@dataclass(frozen=True, slots=True)
class DecoderDimensions:
    """The shape of a Llama-like decoder.

    Attributes
    ----------
    blocks : int
        Number of blocks.
    width : int
        d, of a token's state.
    feed_forward : int
        m, inner width of the gated feed-forward network.
    heads, key_value_heads, head_width : int
        Of the attention.
    vocabulary : int
        Words that the head chooses from.
    """

    blocks: int
    width: int
    feed_forward: int
    heads: int
    key_value_heads: int
    head_width: int
    vocabulary: int

    @property
    def cost(self) -> PrefillCost:
        """What a model of this shape costs."""
        queries = self.heads * self.head_width
        keys = self.key_value_heads * self.head_width
        # Queries and output, keys and values; gate, up and down.
        weights = 2 * self.width * (queries + keys) + 3 * self.width * self.feed_forward
        block = LayerCost(linear=2 * weights, quadratic=2 * 2 * queries)
        return PrefillCost(block, self.blocks, head=2 * self.width * self.vocabulary)


VICUNA_7B: Final = DecoderDimensions(
    blocks=32,
    width=4096,
    feed_forward=11008,
    heads=32,
    key_value_heads=32,
    head_width=128,
    vocabulary=32000,
)
"""The decoder of LLaVA-1.5-7B and LLaVA-Next-7B."""


def compute_prefill_cost(model: Any) -> PrefillCost:
    """What a loaded vision-language model's decoder and head cost, read off their weights."""
    family = family_of(model)
    blocks = family.layers(model)
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise InputError(
            f"the cost of {type(model).__name__} is not known: its head is a "
            f"{type(head).__name__}, not one linear layer."
        )
    block = compute_block_cost(blocks, model.get_submodule(family.decoder).config)
    return PrefillCost(block, len(blocks), head=2 * head.in_features * head.out_features)


def limit_to_visible_pairs(cost: LayerCost) -> LayerCost:
    """The same block, counting only the pairs of tokens that causal attention sees.

    These are n * (n + 1) / 2 of the n * n pairs: half of the quadratic part becomes linear.
    """
    half = Fraction(cost.quadratic) / 2
    return LayerCost(linear=cost.linear + half, quadratic=half)
