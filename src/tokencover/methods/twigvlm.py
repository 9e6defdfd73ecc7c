"""TwigVLM (ICCV 2025, arXiv 2503.14075).

Place: before a decoder block, by default after two blocks have run, and once more at three quarters
of the depth. Signal: the attention of the last prompt token in a twig, a few trained blocks that
grow on the early block.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods._shared.look_ahead_method import LooksAhead
from tokencover.methods.base import Card, View
from tokencover.methods.registry import register_method
from tokencover.twig import Twig, load_twig


@register_method
@dataclass(frozen=True)
class TwigVLM(LooksAhead):
    """Keep what a trained twig attends to; nothing in the last blocks.

    The twig is run on all tokens of the sequence. The paper also decodes faster by letting the
    twig draft words; that changes no answer and is not done here.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. The paper's budgets are
        "layer_mean", see `LooksAhead`.
    after : int
        How many decoder blocks run before pruning (K of the paper); the twig must have been grown
        there.
    wipe : int, float or None
        As in `FinalWipe`; None for no wipe.
    weights : str
        Folder of the twig, as `tokencover.twig.save_twig` wrote it, or ``"pebble"`` for the twig
        of the model that comes with the package. It is read when the first picture comes.
    """

    name: ClassVar[str] = "twigvlm"
    card: ClassVar[Card] = Card(
        title="TwigVLM",
        year=2025,
        objective="prompt",
        pruning_point="after 2 and 24 of 32 decoder blocks",
        signal="attention row of the last prompt token in a trained twig",
        paper="2503.14075",
        needs=("trained twig",),
        departs="the twig does not draft words while decoding",
    )
    reads_prompt = False

    weights: str = ""

    def read_ahead(self, view: View) -> Tensor:
        """``(b, heads, 1, n)``, from the twig's last block."""
        return view.ahead(self._fit_blocks(view), view.last.unsqueeze(-1))

    @functools.cached_property
    def twig(self) -> Twig:
        """The twig, read from its files the first time."""
        if not self.weights:
            raise InputError(
                "TwigVLM needs a twig trained for this model: give weights='folder', train one "
                "with research/twig, or use tc.LookAhead, which needs none."
            )
        with torch.inference_mode(False):
            return load_twig(self.weights)

    def _fit_blocks(self, view: View) -> list[nn.Module]:
        """The twig's blocks, of the type and on the device of the states."""
        plan, states = self.twig.plan, view.hidden_states
        found = (view.num_layers, states.shape[-1], self.after)
        if (plan.base_depth, plan.width, plan.after) != found:
            raise InputError(
                f"the twig {self.weights!r} was grown on a decoder of {plan.base_depth} blocks of "
                f"width {plan.width}, after {plan.after} of them; this one has {found[0]} blocks "
                f"of width {found[1]} and is pruned after {found[2]}. Give the weights of a twig "
                f"for this model, and after={plan.after}."
            )
        with torch.inference_mode(False):
            self.twig.blocks.to(device=states.device, dtype=states.dtype)
        return list(self.twig.blocks)
