"""Average pooling: a smaller image instead of selected tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tokencover.methods._shared.image_cells import ImageCell, cut_into_cells
from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class Downsample(ActsOnce):
    """Cut each image into nearly equal rectangles, K in all, and keep the mean of each.

    The mean replaces the token in the middle of the rectangle. See `cut_into_cells`.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 0 by default.
    """

    name: ClassVar[str] = "downsample"
    card: ClassVar[Card] = Card(
        title="Downsample",
        year=None,
        objective="visual",
        pruning_point="before the decoder",
        signal="grid locations; means of cells",
    )
    reads_prompt = False
    merges = True

    after: int = 0

    def choose(self, view: View) -> Choice:
        """Keep the mean of every cell, in the slot of its middle."""
        states, kept = view.hidden_states.clone(), []
        for sample, cells in enumerate(cut_into_cells(view, self.num_kept(view))):
            centers = torch.tensor([cell.center for cell in cells], device=states.device)
            states[sample, centers] = _average_cells(view.hidden_states[sample], cells).to(
                states.dtype
            )
            kept.append(centers)
        return Choice(kept, hidden_states=states)


def _average_cells(states: Tensor, cells: Sequence[ImageCell]) -> Tensor:
    """Return the mean ``(k, d)`` of each cell of ``(n, d)``, in float32 at least."""
    members = pad_sequence(
        [torch.tensor(cell.members) for cell in cells], batch_first=True, padding_value=-1
    ).to(states.device)
    exists = (members >= 0).unsqueeze(-1)
    precise = torch.promote_types(states.dtype, torch.float32)
    gathered = states[members.clamp(min=0)].to(precise).masked_fill(~exists, 0.0)
    return gathered.sum(1) / exists.sum(1)
