"""SCOPE: saliency-coverage oriented token pruning (NeurIPS 2025, arXiv 2510.24214).

Place: before the decoder. Signal: how much a visual token adds to the coverage of all of them, by
cosines of projected tokens, times the attention that the tower's class token gives it; the question
is not looked at.

Written from the published formula alone. Where that leaves a choice:

- Cosines are those of projected tokens, which every family has; the authors' code compares the
  tower's features before the projector: `compare="tower"`. A token that is no patch of the tower
  then covers nothing.
- Negative cosines are clipped at 0: nothing covers a token better than no token does.
- Saliency is the attention in the tower block that makes the visual tokens, mean over heads. In
  towers without a class token it is the mean attention received; where the model folds patches into
  one token, the mean over its patches.
- All pictures and crops of a prompt form one pool with one budget. Class tokens that a model passes
  on have no saliency; newline tokens always stay.
- When no token has both gain and saliency, the most salient ones left make up the number.
- Gains are exact and ties go to the lowest index, see `coverage`. Memory is O(n**2) for n visual
  tokens of a sample, one sample at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.covering import check_finite, keep_precision, to_float32
from tokencover.errors import InputError
from tokencover.methods._shared.greedy_sets import choose_cover, compare_in_steps
from tokencover.methods._shared.tower_crops import Crops, ReadsTower, read_attention_rows
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class SCOPE(ReadsTower):
    """Keep salient visual tokens that cover the others.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are. For
        `budget_mode` and `positions` see `BudgetedMethod`.
    alpha : float
        The power of saliency in the score, at least 0; with 0 coverage alone counts.
    compare : "projected" or "tower"
        Whose cosines say what covers what: projected tokens, or the tower's features.
    """

    name: ClassVar[str] = "scope"
    card: ClassVar[Card] = Card(
        title="SCOPE",
        year=2025,
        objective="visual",
        pruning_point="before the decoder",
        signal="coverage by cosines, weighted by the class token's attention",
        paper="2510.24214",
        needs=("encoder",),
        departs='similarity of projected tokens (`compare="tower"`: as its code); one pool',
    )

    alpha: float = 1.0
    added_later: ClassVar[tuple[str, ...]] = ("compare",)

    compare: Literal["projected", "tower"] = "projected"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_number = isinstance(self.alpha, int | float) and not isinstance(self.alpha, bool)
        if not is_number or not 0 <= self.alpha < math.inf:
            raise InputError(
                f"alpha must be a number of at least 0, got {self.alpha!r}: 1 multiplies coverage "
                "by saliency, 0 leaves saliency out."
            )
        if self.compare not in ("projected", "tower"):
            raise InputError(f"compare must be 'projected' or 'tower', got {self.compare!r}.")

    def choose(self, view: View) -> Choice:
        """The greedy cover of every sample."""
        kept = []
        with keep_precision(view.hidden_states.device):
            salient = to_float32(read_saliency(view))
            states = view.hidden_states if self.compare == "projected" else read_features(view)
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


def read_features(view: View) -> Tensor:
    """What the tower made of each visual token, ``(b, n, w)``; zero for what is no patch of it."""
    encoded, _ = Crops.from_view(view, "SCOPE")
    index = encoded.index
    rows = encoded.features.flatten(0, 1)[index.clamp(min=0)]
    return rows.masked_fill((index < 0).unsqueeze(-1), 0.0)


def read_saliency(view: View) -> Tensor:
    """Attention that each visual token gets from the class token of its crop, mean over heads.

    Returns
    -------
    Tensor
        ``(b, n)`` float32; 0 for tokens that are no patch of the tower, and beyond the mask.

    Raises
    ------
    InputError
        If nothing is known of the tower, or visual tokens do not come from it one to one.
    """
    encoded, _ = Crops.from_view(view, "SCOPE")
    patches = read_attention_rows(encoded, encoded.feature_block).mean(1)
    every = torch.nn.functional.pad(patches, (encoded.classes, 0)).flatten()
    index = encoded.index
    from_tower = view.mask & (index >= 0)
    return torch.where(from_tower, every[index.clamp(min=0)], 0.0)
