"""A regular lattice of tokens: the control for methods that choose by content.

Place: before a decoder block, by default after one block has run. Signal: where tokens lie in their
pictures; neither states nor the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tokencover.methods.acts_once import ActsOnce
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.cells import cells_of


@dataclass(frozen=True)
class UniformGrid(ActsOnce):
    """Keep visual tokens that are spread evenly over the rows and columns of each picture.

    Each picture is cut into nearly equal rectangles (see `tokencover.methods.cells`), K in all, and
    the token in the middle of each stays. A 24 x 24 grid with K = 64 keeps an 8 x 8 lattice.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning.
    """

    name: ClassVar[str] = "grid"
    card: ClassVar[Card] = Card(
        title="Uniform grid",
        year=None,
        objective="visual",
        place="after 1 decoder block",
        signal="places of tokens in the picture",
    )
    reads_prompt = False

    def choose(self, view: View) -> Choice:
        """The middle of every cell."""
        cells = cells_of(view, self.left(view))
        device = view.mask.device
        return Choice(
            [torch.tensor([cell.center for cell in each], device=device) for each in cells]
        )
