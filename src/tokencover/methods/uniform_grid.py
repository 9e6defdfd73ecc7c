"""A regular lattice of tokens: the control for methods that choose by content.

Place: before a decoder block, by default after one block has run. Signal: where tokens lie in their
pictures; neither states nor the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from tokencover.methods._shared.picture_cells import cut_into_cells
from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class UniformGrid(ActsOnce):
    """Keep visual tokens that are spread evenly over the rows and columns of each picture.

    Each picture is cut into nearly equal rectangles (`cut_into_cells` says how), K in all, and the
    token in the middle of each stays. A 24 x 24 grid with K = 64 keeps an 8 x 8 lattice.

    Its settings, `budget` and `after`, are those of `ActsOnce`.
    """

    name: ClassVar[str] = "grid"
    card: ClassVar[Card] = Card(
        title="Uniform grid",
        year=None,
        objective="visual",
        pruning_point="after 1 decoder block",
        signal="places of tokens in the picture",
    )
    reads_prompt = False

    after: int = 1

    def choose(self, view: View) -> Choice:
        """The middle of every cell."""
        cells = cut_into_cells(view, self.num_kept(view))
        device = view.mask.device
        return Choice(
            [torch.tensor([cell.center for cell in each], device=device) for each in cells]
        )
