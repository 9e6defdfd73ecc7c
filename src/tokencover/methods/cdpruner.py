"""CDPruner (NeurIPS 2025): maximal conditional diversity.

Differences from the released code: it takes relevance from CLIP's text encoder, which Hugging Face
checkpoints of LLaVA do not contain, and negates the similarity (`sign=-1`). All images of a prompt
form one pool. When no token adds volume (K above the rank of the kernel), the most relevant
remaining tokens follow. float64, with ties to the lowest index, instead of half precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.budget import Budget
from tokencover.covering import Points, check_finite, cosine, keep_precision, snap, to_float32
from tokencover.methods._shared.greedy_sets import choose_volume, fill_up
from tokencover.methods.base import BeforeDecoder, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class CDPruner(BeforeDecoder):
    """Keep visual tokens that differ from each other and are relevant to the prompt.

    https://arxiv.org/abs/2506.10967. The kept set is the most likely one of a determinantal point
    process, chosen greedily, with the kernel ``relevance[i] * cos(i, j) * relevance[j]``. Relevance
    is the cosine with the mean embedding of the prompt tokens at the decoder's input, scaled to 0
    .. 1 over the sample. Expect numbers that differ from the paper's.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    sign : 1 or -1
        Whether tokens similar to the prompt are relevant (default), or those unlike it.
    """

    name: ClassVar[str] = "cdpruner"
    card: ClassVar[Card] = Card(
        title="CDPruner",
        year=2025,
        objective="both",
        pruning_point="before the decoder",
        signal="volume spanned by the kept tokens, weighted by cosine with the prompt tokens",
        paper="2506.10967",
        departs=(
            "relevance from the prompt tokens at the decoder's input, because LLaVA checkpoints "
            "contain no CLIP text encoder; `sign=-1` is the code's sign; one pool"
        ),
        caution=(
            "CDPruner computes relevance from the prompt tokens at the decoder's input, not with "
            "CLIP's text encoder as its authors do, and sign=1 is the sign of the paper, not of "
            "the code: its rows are not those of its paper."
        ),
    )

    setting_choices: ClassVar = {"sign": (1, -1)}

    sign: Literal[1, -1] = 1

    @classmethod
    def as_released(cls, budget: Budget) -> CDPruner:
        """Return the method with the sign of the released code."""
        return cls(budget, sign=-1)

    def choose(self, view: View) -> Choice:
        """Select the greedy set of the conditional determinantal point process."""
        kept = []
        for sample, count in enumerate(self.num_kept(view)):
            with keep_precision(view.hidden_states.device):
                states, mask = view.hidden_states[sample], view.mask[sample]
                tokens = to_float32(states if mask.all() else states[mask])
                words = to_float32(view.prompt[sample, view.prompt_mask[sample]])
                check_finite("prompt", words)
                points = snap(tokens)
                if not points.square.isfinite().all():
                    check_finite("visual", tokens)
                relevance = rate_by_prompt(points, words, self.sign)
                chosen = fill_up(choose_volume(points, relevance, count), relevance, count)
            kept.append(chosen.to(view.hidden_states.device))
        return Choice(kept)


def rate_by_prompt(points: Points, words: Tensor, sign: int) -> Tensor:
    """Return each token's relevance to the prompt tokens ``(l, d)``, ``(n,)`` float64 in [0, 1]."""
    everything = torch.ones_like(points.square)
    if len(words) == 0:
        return everything
    mean = snap(words.double().mean(0, keepdim=True))
    similarity = sign * cosine(points, mean).squeeze(-1)
    low, high = similarity.aminmax()
    return (similarity - low) / (high - low) if high > low else everything
