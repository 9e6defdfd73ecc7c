"""What happened to one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(slots=True)
class Trace:
    """What was kept of one sample, and why.

    Attributes
    ----------
    sample : int
        Row of the batch.
    visual_tokens : int
        How many visual tokens the sample has, newline tokens included.
    kept : Tensor
        Indices of the visual tokens that are left after the last pruning, ascending, among all
        visual tokens of the sample in the order of the sequence.
    medium, frame, row, column : Tensor
        Which image or video of the prompt each kept token belongs to, and where it lies there.
    grids : dict
        (rows, columns) of every view or frame, by (medium, frame).
    tokens_per_layer : list of int
        Visual tokens that each decoder block worked on.
    seconds : float
        Time the method took to choose, for the whole batch.
    details : Mapping
        What the method has to say; `prompt_centers`, `visual_centers`, `coupling` and `split` read
        from here. Centres are indices among all visual tokens of the sample, like `kept`.
    """

    sample: int
    visual_tokens: int
    kept: Tensor
    medium: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    grids: dict[tuple[int, int], tuple[int, int]]
    tokens_per_layer: list[int]
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt_centers(self) -> Tensor:
        """Tokens chosen for what was asked, best first; empty if the method has none."""
        return self._indices("prompt_centers")

    @property
    def visual_centers(self) -> Tensor:
        """Tokens chosen for the rest of the picture, in order of choice."""
        return self._indices("visual_centers")

    @property
    def coupling(self) -> float | None:
        """The Hausdorff distance eta where pruning happened, if the method measures it."""
        return self.details.get("coupling")

    @property
    def split(self) -> Any:
        """The budget split that was used; a list with one entry for each budget spent."""
        return self.details.get("split")

    def _indices(self, name: str) -> Tensor:
        found: Tensor = self.details.get(name, torch.empty(0, dtype=torch.int64))
        return found
