"""Look-ahead FastV with FinalWipe: the untrained sibling of TwigVLM (arXiv 2503.14075).

Place: before a decoder block, by default after two blocks have run, and once more at three quarters
of the depth. Signal: the attention of the last prompt token some blocks later, which are run ahead
on the whole sequence to see it. It is not TwigVLM, whose blocks are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tokencover.errors import InputError
from tokencover.methods._shared.look_ahead_method import LooksAhead
from tokencover.methods.base import Card, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class LookAhead(LooksAhead):
    """Keep what the last prompt token attends to some blocks later; nothing in the last blocks.

    The model's own next blocks are run on all tokens, the attention of the last of them is read,
    and they run again on what is kept.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning.
    wipe : int, float or None
        As in `FinalWipe`; None for no wipe.
    layers : int
        How many blocks are run ahead; with 1 it is the attention of the block about to run.
    """

    name: ClassVar[str] = "look_ahead"
    card: ClassVar[Card] = Card(
        title="look-ahead FastV + FinalWipe",
        year=2025,
        objective="prompt",
        pruning_point="after 2 and 24 of 32 decoder blocks",
        signal="attention row of the last prompt token, three of the model's own blocks ahead",
        paper="2503.14075",
    )
    reads_prompt = False

    layers: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.layers, bool) or not isinstance(self.layers, int) or self.layers < 1:
            raise InputError(f"layers must be 1 block or more to run ahead, got {self.layers!r}.")

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the block that follows the first `after` ones, and the wipe."""
        if self.after + self.layers > num_layers:
            raise InputError(
                f"layers={self.layers} blocks cannot be run ahead after {self.after}: this model "
                f"has {num_layers}."
            )
        return super().pruning_layers(num_layers)

    def read_ahead(self, view: View) -> Tensor:
        """``(b, heads, 1, n)``, from the model's own next blocks."""
        numbers = range(self.after, self.after + self.layers)
        return view.ahead(numbers, view.last.unsqueeze(-1))
