"""What the training loop asks of whatever it trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from tokencover.pebble.batches import Batch


class Subject(Protocol):
    """A model to train, with what it learns from."""

    def start(self, seed: int) -> Any:
        """Model with the weights that training starts from."""

    def batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """What one step sees; see `tokencover.pebble.batches.make_batch`."""

    def vision(self, model: Any) -> list[nn.Module]:
        """Parts of the model that see."""

    def see(
        self, model: Any, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Visual tokens, what describing them badly costs, and how often they tell the words."""

    def save(self, model: Any, folder: Path) -> None:
        """Write the finished model with all that is needed to use it."""
