"""How many visual tokens to keep: a count, or a share of those there are."""

from __future__ import annotations

import math
from fractions import Fraction

from tokencover.errors import InputError

Budget = int | float
"""An integer is a number of tokens, a float a share of them: 64, or 0.111."""


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
        hint = f"for {int(budget)} tokens write {int(budget)}" if is_count else "write 0.111, say"
        raise InputError(f"budget {budget} as a float is a share in (0, 1]; {hint}.")
    return max(1, nearest(Fraction(budget) * total))


def nearest(value: Fraction) -> int:
    """The nearest integer, halves upwards."""
    return math.floor(value + Fraction(1, 2))
