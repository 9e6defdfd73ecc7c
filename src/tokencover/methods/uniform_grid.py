"""A regular grid of tokens: the control for methods that select by content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tokencover.methods._shared.image_cells import cut_into_cells
from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class UniformGrid(ActsOnce):
    """Keep visual tokens that are spread evenly over the rows and columns of each image.

    Each image is cut into nearly equal rectangles (see `cut_into_cells`), K in all, and the token
    in the middle of each stays. A 24 x 24 grid with K = 64 keeps an 8 x 8 grid.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 1 by default.
    """

    name: ClassVar[str] = "grid"
    card: ClassVar[Card] = Card(
        title="Uniform grid",
        year=None,
        objective="visual",
        pruning_point="after 1 decoder layer",
        signal="grid locations",
    )
    reads_prompt = False

    after: int = 1

    def choose(self, view: View) -> Choice:
        """Keep the middle of every cell."""
        cells = cut_into_cells(view, self.num_kept(view))
        device = view.mask.device
        return Choice(
            [torch.tensor([cell.center for cell in some], device=device) for some in cells]
        )
