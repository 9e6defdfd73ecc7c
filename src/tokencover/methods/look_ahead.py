"""Look-ahead FastV with FinalWipe: TwigVLM without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods._shared.decoder import LookAheadMethod
from tokencover.methods.base import Card, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class LookAhead(LookAheadMethod):
    """Keep what the last prompt token attends to some layers later; drop all tokens at the end.

    The model's next layers are run on all tokens, the attention of the last of them is read, and
    they run again on the kept tokens. https://arxiv.org/abs/2503.14075

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning; 2 by default.
    wipe : int, float or None
        As in `FinalWipe`; None for no wipe.
    layers : int
        How many layers are run ahead; 1 is only the layer about to run.
    """

    name: ClassVar[str] = "look_ahead"
    card: ClassVar[Card] = Card(
        title="look-ahead FastV + FinalWipe",
        year=2025,
        objective="prompt",
        pruning_point="after 2 and 24 of 32 decoder layers",
        signal="attention of the last prompt token, three layers ahead",
        paper="2503.14075",
    )
    reads_prompt = False

    setting_minimums: ClassVar = {"layers": 1}

    layers: int = 3

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Return the layer after the first `after` ones, and that of the wipe."""
        if self.after + self.layers > num_layers:
            raise InputError(
                f"layers={self.layers} cannot be run ahead after layer {self.after}: the model has "
                f"{num_layers} layers."
            )
        return super().pruning_layers(num_layers)

    def compute_ahead_attention(self, view: View) -> Tensor:
        """Return ``(b, heads, 1, n)``, from the model's next layers."""
        numbers = range(self.after, self.after + self.layers)
        return view.ahead(numbers, view.last.unsqueeze(-1))
