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
        visual tokens of the sample in the order of the sequence. If the method moved states, the
        tokens whose states are there now, in the order of the sequence; -1 for a state that was
        none of them.
    medium, frame, row, column : Tensor
        Which image or video of the prompt each kept token belongs to, and where it lies there.
    grids : dict
        (rows, columns) of every view or frame, by (medium, frame).
    tokens_per_layer : list of int
        Visual tokens that each decoder block worked on.
    flops, flops_unpruned : int
        Operations of all decoder blocks on the sample's own tokens, as pruned and without pruning.
    seconds : float
        Time the method took to choose, at all its places, for the whole batch.
    details : Mapping
        What the method has to say; `prompt_centers`, `visual_centers`, `centers_words`, `coupling`
        and `split` read from here. Centres are indices among all visual tokens of the sample, like
        `kept`. What costs time and does not decide anything (the words, and eta where the split
        does not depend on it) is computed when it is first read; until then the trace holds the
        states that it needs for that.
    places : Tensor
        ``(visual_tokens, 4)`` int64, medium, frame, row and column of every visual token, of the
        dropped ones too; -1 where a token has none.
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
    flops: int
    flops_unpruned: int
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)
    places: Tensor = field(default_factory=lambda: torch.empty(0, 4, dtype=torch.int64))

    @property
    def mean_tokens(self) -> float:
        """Visual tokens that a decoder block worked on, on average."""
        return sum(self.tokens_per_layer) / len(self.tokens_per_layer)

    @property
    def prompt_centers(self) -> Tensor:
        """Tokens chosen for what was asked, best first; empty if the method has none."""
        return self._read_indices("prompt_centers")

    @property
    def visual_centers(self) -> Tensor:
        """Tokens chosen for the rest of the picture, in order of choice."""
        return self._read_indices("visual_centers")

    @property
    def centers_words(self) -> Tensor:
        """For each prompt centre the place in the sequence of the prompt word nearest to it."""
        return self._read_indices("centers_words")

    @property
    def coupling(self) -> float | None:
        """The Hausdorff distance eta where pruning happened, if the method measures it."""
        return self.details.get("coupling")

    @property
    def split(self) -> Any:
        """The budget split that was used; a list with one entry for each budget spent."""
        return self.details.get("split")

    def _read_indices(self, name: str) -> Tensor:
        found: Tensor = self.details.get(name, torch.empty(0, dtype=torch.int64))
        return found
