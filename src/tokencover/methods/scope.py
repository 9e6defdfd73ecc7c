"""SCOPE (NeurIPS 2025): saliency-coverage oriented token pruning.

Written from the published formula. Where that leaves a choice: cosines are those of projected
tokens, which every family has (the authors' code: `compare="tower"`; a token that is no patch of
the vision encoder then covers nothing). Negative cosines count as 0. Without a class token saliency
is the mean attention received; where the model merges patches, the mean over the patches. All
images form one pool; newline tokens stay. When no token has both gain and saliency, the most
salient remaining ones follow. Memory is O(n**2) for the n visual tokens of a sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.covering import check_finite, keep_precision, to_float32
from tokencover.methods._shared.greedy_sets import choose_cover, compare_in_steps
from tokencover.methods._shared.vision_tiles import (
    Crops,
    VisionEncoderMethod,
    compute_cell_attention,
)
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class SCOPE(VisionEncoderMethod):
    """Keep salient visual tokens that cover the others.

    https://arxiv.org/abs/2510.24214. Each step takes the token that adds most to the coverage of
    all tokens, by cosines, times the class token's attention to it in the block that outputs the
    visual tokens, mean over heads.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    alpha : float
        The power of saliency in the score, at least 0; with 0 only coverage counts.
    compare : `"projected"` or `"tower"`
        Whether cosines are those of projected tokens or of the vision encoder's features.
    """

    name: ClassVar[str] = "scope"
    card: ClassVar[Card] = Card(
        title="SCOPE",
        year=2025,
        objective="visual",
        pruning_point="before the decoder",
        signal="coverage by cosines, weighted by the class token's attention",
        paper="2510.24214",
        needs=("vision attention",),
        departs='similarity of projected tokens (`compare="tower"`: as its code); one pool',
    )

    added_later: ClassVar[tuple[str, ...]] = ("compare",)
    setting_choices: ClassVar = {"compare": ("projected", "tower")}
    setting_limits: ClassVar = {"alpha": (0, math.inf)}

    alpha: float = 1.0
    compare: Literal["projected", "tower"] = "projected"

    def choose(self, view: View) -> Choice:
        """Select the greedy cover of every sample."""
        kept = []
        with keep_precision(view.hidden_states.device):
            salient = to_float32(compute_saliency(view))
            states = view.hidden_states if self.compare == "projected" else get_features(view)
            for sample, count in enumerate(self.num_kept(view)):
                mask = view.mask[sample]
                mine = states[sample]
                tokens = to_float32(mine if mask.all() else mine[mask])
                weights = salient[sample, mask]
                check_finite("visual", tokens)
                check_finite("saliency", weights)
                chosen = choose_cover(compare_in_steps(tokens), weights, count, self.alpha)
                kept.append(chosen.to(view.hidden_states.device))
        return Choice(kept)


def get_features(view: View) -> Tensor:
    """Return the vision encoder's features per visual token, ``(b, n, w)``, zeros without one."""
    encoded, _ = Crops.from_view(view, "SCOPE")
    index = encoded.index
    rows = encoded.features.flatten(0, 1)[index.clamp(min=0)]
    return rows.masked_fill((index < 0).unsqueeze(-1), 0.0)


def compute_saliency(view: View) -> Tensor:
    """Return the class token's attention to each visual token, mean over heads, ``(b, n)`` float32.

    0 for tokens that are no patch of the vision encoder, and for padding.
    """
    encoded, _ = Crops.from_view(view, "SCOPE")
    patches = compute_cell_attention(encoded, encoded.feature_block).mean(1)
    every = torch.nn.functional.pad(patches, (encoded.classes, 0)).flatten()
    index = encoded.index
    from_encoder = view.mask & (index >= 0)
    return torch.where(from_encoder, every[index.clamp(min=0)], 0.0)
