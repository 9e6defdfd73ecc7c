"""TokenCarve: information-preserving token compression (arXiv 2503.10501).

Place: before a decoder block, by default after two blocks have run. Signal: how much each visual
token adds to the singular values of all of them, and the attention of the last token.

Stage 1 ranks the tokens by both signals, adds the ranks and keeps 3K/2 tokens. Stage 2 splits these
into a better and a worse half and merges the K/2 worse ones that are most like a better one into
it, as a plain mean.

Departures from the released code:

- The caches of the blocks before pruning keep all tokens there; the released code cuts them to the
  kept ones, so its answers are decoded with less memory of the picture in these blocks.
- The visual span comes from the sequence. A fixed offset of the released code is off by one: it
  always keeps the first visual token and may drop the first word after the picture.
- The singular values come from a Gram matrix in float64, and one attention row from the queries and
  keys, instead of a full decomposition and full attention maps: the same numbers, less work.
- Ties, which sums of ranks have often, go to the lowest index; in stage 2 to the better rank.
- Batches. With fewer than 3K/2 tokens stage 1 keeps all of them and stage 2 merges what exceeds K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tokencover.covering import (
    check_finite,
    cosine,
    keep_precision,
    rank_descending,
    select_largest,
    snap,
    to_float32,
)
from tokencover.errors import InputError
from tokencover.methods._shared.last_block_method import ReadsLastBlock
from tokencover.methods._shared.nearest_kept import average_members
from tokencover.methods._shared.ranking import choose_best
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class TokenCarve(ReadsLastBlock):
    """Keep the most informative visual tokens, and merge some of them into similar ones.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are. For
        `budget_mode` and `positions` see `BudgetedMethod`.
    after : int
        How many decoder blocks run before pruning, at least 1; 2 is the paper's setting.
    attention_weight : float
        w in [0, 1], how much the rank by attention counts; the rank by information counts 1 - w.
    """

    name: ClassVar[str] = "tokencarve"
    card: ClassVar[Card] = Card(
        title="TokenCarve",
        year=2025,
        objective="both",
        pruning_point="after 2 decoder blocks",
        signal="share in the singular values, attention of the last token; then merging",
        paper="2503.10501",
        departs="the caches of the first blocks keep all tokens; the span is not off by one",
    )
    reads_prompt = False
    merges = True

    after: int = 2
    attention_weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.attention_weight <= 1:
            raise InputError(
                f"attention_weight must be between 0 and 1, got {self.attention_weight}."
            )

    def choose(self, view: View) -> Choice:
        """Rank, prune and merge, for every sample."""
        attention = self.read_last_row(view)
        states, kept, details = view.hidden_states.clone(), [], []
        for sample, left in enumerate(self.num_kept(view)):
            size = int(view.mask[sample].sum())
            tokens = view.hidden_states[sample, :size]
            score = self._score(attention[sample, :size], tokens)
            everything = torch.ones(1, size, dtype=torch.bool, device=score.device)
            (order,) = choose_best(score.unsqueeze(0), everything, [min(left + left // 2, size)])
            merged = pair_most_similar(tokens, order, len(order) - left)
            targets, means = merged.average(tokens)
            states[sample, targets] = means.to(states)
            kept.append(order[~torch.isin(order, merged.sources)])
            details.append({"merged": len(merged.sources)})
        return Choice(kept, hidden_states=states, details=details)

    def _score(self, attention: Tensor, tokens: Tensor) -> Tensor:
        by_attention = rank_scores(attention)
        by_information = rank_scores(measure_information(tokens))
        weight = self.attention_weight
        return weight * by_attention + (1 - weight) * by_information


@dataclass(frozen=True, slots=True)
class Merges:
    """Which tokens go into which; `sources` and `targets` are parallel, targets may repeat."""

    sources: Tensor
    targets: Tensor

    def average(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Each target once, and the mean of it and all that goes into it, ``(m, d)`` float32."""
        places: Tensor = self.targets.unique()
        joins = places.unsqueeze(-1) == self.targets
        return places, average_members(tokens[places], tokens[self.sources], joins)


def measure_information(tokens: Tensor) -> Tensor:
    """Each token's contribution to the singular values.

    With the decomposition ``X = U S V^T`` it is ``sum_j |U_ij| s_j``: the L1 norm of row i of
    ``U S = X V``. The smaller one of the two Gram matrices gives it.

    Parameters
    ----------
    tokens : Tensor
        X ``(n, d)``.

    Returns
    -------
    Tensor
        ``(n,)`` float32.
    """
    with keep_precision(tokens.device):
        values = to_float32(tokens)
        check_finite("visual", values)
        values = values.double()
        if len(values) > values.shape[1]:
            directions = torch.linalg.eigh(values.mT @ values).eigenvectors
            contribution = (values @ directions).abs().sum(-1)
        else:
            squares, directions = torch.linalg.eigh(values @ values.mT)
            # Below this an eigenvalue is rounding error, and its root would not be small.
            noise = squares[-1].clamp(min=0.0) * len(values) * torch.finfo(values.dtype).eps
            lengths = torch.where(squares > noise, squares, 0.0).sqrt()
            contribution = directions.abs() @ lengths
        result: Tensor = contribution.to(tokens.device, torch.float32)
        return result


def rank_scores(scores: Tensor) -> Tensor:
    """From n for the best score down to 1, ``(n,)`` float32."""
    (order,) = choose_best(
        scores.unsqueeze(0), torch.ones_like(scores, dtype=torch.bool).unsqueeze(0), [len(scores)]
    )
    falling = torch.arange(len(scores), 0, -1, dtype=torch.float32, device=scores.device)
    return torch.empty_like(falling).scatter_(0, order, falling)


def pair_most_similar(tokens: Tensor, order: Tensor, count: int) -> Merges:
    """Find what stage 2 merges.

    Parameters
    ----------
    tokens : Tensor
        ``(n, d)``.
    order : Tensor
        Int64, the tokens of stage 1, best first.
    count : int
        How many tokens of the worse half go into one of the better half.
    """
    better, worse = order[: len(order) // 2], order[len(order) // 2 :]
    if count == 0:
        return Merges(worse[:0], better[:0])
    with keep_precision(tokens.device):
        values = to_float32(tokens)
        similarity = cosine(snap(values[worse]), snap(values[better]))
        partner = select_largest(similarity)
        closest = rank_descending(similarity.amax(-1))[:count].to(order.device)
    return Merges(worse[closest], better[partner.to(order.device)[closest]])
