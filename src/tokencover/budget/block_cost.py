"""What a decoder block costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockCost:
    """Floating-point operations of one decoder block on a sequence of n tokens.

    A multiplication and an addition count as two operations; attention counts all n * n pairs, as
    PyTorch's own counter does.

    Attributes
    ----------
    linear : int
        Operations for each token: the projections and the feed-forward network.
    quadratic : int
        Operations for each pair of tokens: the attention.
    """

    linear: int
    quadratic: int

    def of(self, tokens: int) -> int:
        """Operations on a sequence of this length."""
        return self.linear * tokens + self.quadratic * tokens * tokens
