"""CDPruner: maximal conditional diversity (NeurIPS 2025, arXiv 2506.10967).

Place: before the decoder. Signal: cosines between visual tokens, and how relevant each one is to
the prompt.

The kept set is the most likely one of a determinantal point process, found greedily. Its kernel is
``relevance[i] * cos(i, j) * relevance[j]``: a token counts for what it adds to the kept ones, and
for what it has to do with the prompt.

Departures from the released code:

- Relevance. For LLaVA it comes from CLIP's text tower, which Hugging Face checkpoints of LLaVA do
  not carry. Here it is the cosine between a visual token and the mean embedding of the prompt words
  at the decoder's input, scaled to 0 .. 1 over the sample; all ones if there is no prompt. Expect
  numbers that differ from the paper's.
- Sign. The released code negates the similarity before it scales it, so that the tokens least like
  the prompt count as relevant; `sign=-1`, or `CDPruner.as_released`, does that.
- All pictures and crops of a prompt form one pool with one budget, instead of a budget for each
  crop: K is then what is kept.
- When no token adds volume any more (K above the rank of the kernel), the rest are the most
  relevant ones left, instead of what rounding makes of zero gains.
- float64, batches, ties to the lowest index. In half precision, as the released code computes, kept
  sets differ: docs/methods.md says by how much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tokencover.budget import Budget
from tokencover.covering import Points, check_finite, cosine, keep_precision, snap, to_float32
from tokencover.errors import InputError
from tokencover.methods._shared.greedy_sets import fill_up
from tokencover.methods._shared.volume_sets import choose_volume
from tokencover.methods.base import BeforeDecoder, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class CDPruner(BeforeDecoder):
    """Keep visual tokens that differ from each other and matter to the prompt.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are. For
        `budget_mode` and `positions` see `BudgetedMethod`.
    sign : 1 or -1
        Whether tokens similar to the prompt are the relevant ones, or those unlike it.
    """

    name: ClassVar[str] = "cdpruner"
    card: ClassVar[Card] = Card(
        title="CDPruner",
        year=2025,
        objective="both",
        pruning_point="before the decoder",
        signal="volume spanned by the kept tokens, weighted by cosine with the prompt words",
        paper="2506.10967",
        departs=(
            "relevance from the prompt words at the decoder's input, because LLaVA "
            "checkpoints carry no CLIP text tower; `sign=-1` is the code's sign; one pool"
        ),
        caution=(
            "CDPruner rates relevance by the prompt words at the decoder's input, not by CLIP's "
            "text tower as its authors do, and with sign=1 by the sign of the paper, not of the "
            "code: its rows are not those of its paper."
        ),
    )

    sign: Literal[1, -1] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sign not in (1, -1):
            raise InputError(f"sign must be 1 or -1, got {self.sign!r}.")

    @classmethod
    def as_released(cls, budget: Budget) -> CDPruner:
        """With the sign of the released code: the tokens least like the prompt are relevant."""
        return cls(budget, sign=-1)

    def choose(self, view: View) -> Choice:
        """The greedy set of the conditional determinantal point process, of every sample."""
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
    """How much each visual token has to do with the prompt.

    Parameters
    ----------
    points : Points
        ``(n, d)``, the visual tokens.
    words : Tensor
        ``(l, d)``, the prompt words; there may be none.
    sign : int
        1 if similar tokens are relevant, -1 if unlike ones are.

    Returns
    -------
    Tensor
        ``(n,)`` float64 in [0, 1]; all ones if the prompt does not tell tokens apart.
    """
    everything = torch.ones_like(points.square)
    if len(words) == 0:
        return everything
    mean = snap(words.double().mean(0, keepdim=True))
    similarity = sign * cosine(points, mean).squeeze(-1)
    low, high = similarity.aminmax()
    return (similarity - low) / (high - low) if high > low else everything
