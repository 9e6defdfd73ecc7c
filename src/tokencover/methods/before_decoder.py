"""Methods that prune before the decoder sees anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tokencover.methods.base import BudgetedMethod, Positions


@dataclass(frozen=True)
class BeforeDecoder(BudgetedMethod):
    """A method whose tokens are all the decoder ever gets, so they have no gaps by default."""

    positions: Positions = field(default="reindex", kw_only=True)

    def blocks(self, depth: int) -> Sequence[int]:
        """Before the decoder."""
        return (0,)
