"""TwigVLM (ICCV 2025): pruning by a trained twig."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods._shared.decoder import LookAheadMethod
from tokencover.methods.base import Card, View
from tokencover.methods.registry import register_method
from tokencover.twig import Twig, load_twig


@register_method
@dataclass(frozen=True)
class TwigVLM(LookAheadMethod):
    """Keep what a trained twig attends to; drop all visual tokens before the last layers.

    https://arxiv.org/abs/2503.14075. A twig is a few trained layers on top of the first `after`
    ones, run on all tokens of the sequence. The paper's speculative decoding with it is not done
    here.

    Parameters
    ----------
    budget : int or float
        K; for `budget_mode` and `positions` see `BudgetedMethod`. The paper's budgets are
        "layer_mean", see `LookAheadMethod`.
    after : int
        How many decoder layers run before pruning (the paper's K), as for the training of the twig.
    wipe : int, float or None
        As in `FinalWipe`; None for no wipe.
    weights : str
        Folder of the twig, as `tokencover.twig.save_twig` wrote it, or ``"pebble"`` for the twig of
        the bundled model. It is loaded on first use.
    """

    name: ClassVar[str] = "twigvlm"
    card: ClassVar[Card] = Card(
        title="TwigVLM",
        year=2025,
        objective="prompt",
        pruning_point="after 2 and 24 of 32 decoder layers",
        signal="attention of the last prompt token in a trained twig",
        paper="2503.14075",
        needs=("trained twig",),
        departs="no speculative decoding with the twig",
    )
    reads_prompt = False

    weights: str = ""

    def compute_ahead_attention(self, view: View) -> Tensor:
        """Return ``(b, heads, 1, n)``, from the twig's last layer."""
        return view.ahead(self._fit_blocks(view), view.last.unsqueeze(-1))

    @functools.cached_property
    def twig(self) -> Twig:
        """The twig, loaded on first use."""
        if not self.weights:
            raise InputError(
                "TwigVLM needs a twig trained for this model: set weights='folder', train one with "
                "research/twig, or use tc.LookAhead, which needs none."
            )
        with torch.inference_mode(False):
            return load_twig(self.weights)

    def _fit_blocks(self, view: View) -> list[nn.Module]:
        """Return the twig's layers, with the dtype and device of the hidden states."""
        plan, states = self.twig.plan, view.hidden_states
        model = (view.num_layers, states.shape[-1], self.after)
        if (plan.base_depth, plan.width, plan.after) != model:
            raise InputError(
                f"the twig {self.weights!r} was trained for a decoder of {plan.base_depth} layers "
                f"of width {plan.width}, after layer {plan.after}; this one has {model[0]} layers "
                f"of width {model[1]} and is pruned after layer {model[2]}. Use the weights of a "
                f"twig for this model, and after={plan.after}."
            )
        with torch.inference_mode(False):
            self.twig.blocks.to(device=states.device, dtype=states.dtype)
        return list(self.twig.blocks)
