"""Average pooling: a smaller picture instead of chosen tokens.

Place: before a decoder block, by default before the decoder. Signal: where tokens lie in their
pictures; neither states nor the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from tokencover.methods._shared.picture_cells import PictureCell, cut_into_cells
from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class Downsample(ActsOnce):
    """Cut each picture into nearly equal rectangles, K in all, and keep the mean of each.

    `cut_into_cells` says how they are cut. The mean takes the place of the token in the middle of
    its cell.

    Its settings, `budget` and `after`, are those of `ActsOnce`.
    """

    name: ClassVar[str] = "downsample"
    card: ClassVar[Card] = Card(
        title="Downsample",
        year=None,
        objective="visual",
        pruning_point="before the decoder",
        signal="places of tokens in the picture; means of cells",
    )
    reads_prompt = False
    merges = True

    after: int = 0

    def choose(self, view: View) -> Choice:
        """The mean of every cell, in the slot of its middle."""
        states, kept = view.hidden_states.clone(), []
        for sample, cells in enumerate(cut_into_cells(view, self.num_kept(view))):
            centers = torch.tensor([cell.center for cell in cells], device=states.device)
            states[sample, centers] = _average_cells(view.hidden_states[sample], cells).to(
                states.dtype
            )
            kept.append(centers)
        return Choice(kept, hidden_states=states)


def _average_cells(states: Tensor, cells: Sequence[PictureCell]) -> Tensor:
    """The mean of each cell's states, ``(k, d)``, from ``(n, d)``; at least in float32."""
    members = pad_sequence(
        [torch.tensor(cell.members) for cell in cells], batch_first=True, padding_value=-1
    ).to(states.device)
    exists = (members >= 0).unsqueeze(-1)
    precise = torch.promote_types(states.dtype, torch.float32)
    gathered = states[members.clamp(min=0)].to(precise).masked_fill(~exists, 0.0)
    return gathered.sum(1) / exists.sum(1)
