"""Ways to go beyond the paper's MoB that were tried; what helped is `tokencover.MoBStages`.

`beyond.py` registers them; it is not done here, so that tests may import them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.budget import round_half_up
from tokencover.methods import Card, MoBStages, View, choose_best

Signal = Literal["none", "words", "weighed", "attention"]


@dataclass(frozen=True)
class Variant(MoBStages):
    """MoB in stages with other prompt centres.

    Parameters
    ----------
    budget, stages, ratio, asked, folded
        As for `MoBStages`; here `asked` is for every stage whose signal is not "none".
    first, later
        What prompt centres are chosen by, at the first stage and after it: cosines with words, the
        same with each word by how much its cosines stand out, or attention of the last token.
    mass
        Instead of `asked`: as many prompt centres as have this fraction of the last token's
        attention.
    """

    name: ClassVar[str] = "variant"
    card: ClassVar[Card] = Card(
        title="Variant",
        year=2026,
        objective="both",
        pruning_point="in stages",
        signal="as told",
        ours=True,
    )
    reads_prompt = True

    first: Signal = "none"
    later: Signal = "attention"
    mass: float | None = None

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        """The blocks about to run where attention is asked for."""
        first, *later = self.pruning_layers(num_layers)
        places = [first] if self.first == "attention" else []
        return [*places, *later] if self.later == "attention" else places

    def _select_prompt_centers(self, view: View, counts: Sequence[int]) -> list[Tensor]:
        is_first = view.layer_idx == self.pruning_layers(view.num_layers)[0]
        signal = self.first if is_first else self.later
        if signal == "none":
            return [view.positions.new_empty(0) for _ in counts]
        scores = _read_attention(view) if signal == "attention" else _compare(view, signal)
        wanted = [round_half_up(Fraction(self.asked) * count) for count in counts]
        if self.mass is not None:
            wanted = _count_until(self.mass, scores.masked_fill(~view.mask, 0), counts)
        return choose_best(scores, view.mask, wanted)


def _read_attention(view: View) -> Tensor:
    return view.attention(view.layer_idx, view.last.unsqueeze(-1)).squeeze(2).mean(1)


def _compare(view: View, signal: Signal) -> Tensor:
    """For each visual token the best cosine with a word, or the best that stands out."""
    tokens = torch.nn.functional.normalize(view.hidden_states.float(), dim=-1)
    words = torch.nn.functional.normalize(view.prompt.float(), dim=-1)
    alignment = words @ tokens.mT
    if signal == "weighed":
        seen = view.mask.unsqueeze(1)
        count = seen.sum(-1, keepdim=True)
        mean = (alignment * seen).sum(-1, keepdim=True) / count
        spread = (((alignment - mean) ** 2 * seen).sum(-1, keepdim=True) / count).sqrt()
        alignment = (alignment - mean) / spread.clamp(min=1e-9)
    return alignment.masked_fill(~view.prompt_mask.unsqueeze(-1), float("-inf")).amax(1)


def _count_until(mass: float, scores: Tensor, counts: Sequence[int]) -> list[int]:
    """How many of the best tokens have that fraction of all scores; at most the counts."""
    shares = scores.sort(-1, descending=True).values.cumsum(-1) / scores.sum(-1, keepdim=True)
    needed = (shares < mass).sum(-1) + 1
    return [min(count, int(need)) for count, need in zip(counts, needed, strict=True)]
