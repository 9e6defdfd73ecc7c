"""TokenCarve (arXiv 2503.10501): information-preserving token compression.

Differences from the released code: the KV cache of the layers before pruning keeps all tokens. A
fixed offset of the released code is off by one, so it always keeps the first visual token and may
drop the first text token after the image. The singular values come from a Gram matrix in float64.
Ties of ranks go to the lowest index; in stage 2 to the better rank.
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
from tokencover.methods._shared.decoder import LastLayerMethod
from tokencover.methods._shared.nearest_kept import average_members
from tokencover.methods._shared.ranking import choose_top
from tokencover.methods.base import Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class TokenCarve(LastLayerMethod):
    """Keep the most informative visual tokens, and merge some of them into similar ones.

    https://arxiv.org/abs/2503.10501. Stage 1 ranks the tokens by their contribution to the singular
    values and by the attention of the last token, adds the ranks and keeps 3K/2. Stage 2 merges the
    K/2 tokens of the worse half that are most similar to one of the better half into it.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    after : int
        How many decoder layers run before pruning, at least 1; 2 is the paper's setting.
    attention_weight : float
        w in [0, 1], the weight of the rank by attention; the rank by information has weight 1 - w.
    """

    name: ClassVar[str] = "tokencarve"
    card: ClassVar[Card] = Card(
        title="TokenCarve",
        year=2025,
        objective="both",
        pruning_point="after 2 decoder layers",
        signal="contribution to the singular values, attention of the last token; then merging",
        paper="2503.10501",
        departs="the caches of the first layers keep all tokens; the span is not off by one",
    )
    reads_prompt = False
    merges = True
    setting_limits: ClassVar = {"attention_weight": (0, 1)}

    after: int = 2
    attention_weight: float = 0.5

    def choose(self, view: View) -> Choice:
        """Rank, prune and merge."""
        attention = self.compute_last_attention(view)
        states, kept, details = view.hidden_states.clone(), [], []
        for sample, num_kept in enumerate(self.num_kept(view)):
            size = int(view.mask[sample].sum())
            tokens = view.hidden_states[sample, :size]
            score = self._score(attention[sample, :size], tokens)
            order = choose_top(score, min(num_kept + num_kept // 2, size))
            sources, into = pair_most_similar(tokens, order, len(order) - num_kept)
            targets: Tensor = into.unique()
            joins = targets.unsqueeze(-1) == into
            means = average_members(tokens[targets], tokens[sources], joins)
            states[sample, targets] = means.to(states)
            kept.append(order[~torch.isin(order, sources)])
            details.append({"merged": len(sources)})
        return Choice(kept, hidden_states=states, details=details)

    def _score(self, attention: Tensor, tokens: Tensor) -> Tensor:
        by_attention = rank_scores(attention)
        by_information = rank_scores(measure_information(tokens))
        weight = self.attention_weight
        return weight * by_attention + (1 - weight) * by_information


def measure_information(tokens: Tensor) -> Tensor:
    """Compute each token's contribution to the singular values of ``X (n, d)``, ``(n,)`` float32.

    With the decomposition ``X = U S V^T`` it is ``sum_j |U_ij| s_j``: the L1 norm of row i of
    ``U S = X V``. The smaller of the two Gram matrices gives it.
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
            # Smaller eigenvalues are rounding errors, whose roots would not be small.
            noise = squares[-1].clamp(min=0.0) * len(values) * torch.finfo(values.dtype).eps
            lengths = torch.where(squares > noise, squares, 0.0).sqrt()
            contribution = directions.abs() @ lengths
        result: Tensor = contribution.to(tokens.device, torch.float32)
        return result


def rank_scores(scores: Tensor) -> Tensor:
    """Return ranks from n for the best score down to 1, ``(n,)`` float32."""
    order = choose_top(scores, len(scores))
    falling = torch.arange(len(scores), 0, -1, dtype=torch.float32, device=scores.device)
    return torch.empty_like(falling).scatter_(0, order, falling)


def pair_most_similar(tokens: Tensor, order: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Select the `count` of ``(n, d)`` tokens that stage 2 merges, and the token each joins.

    `order` is that of stage 1.
    """
    better, worse = order[: len(order) // 2], order[len(order) // 2 :]
    if count == 0:
        return worse[:0], better[:0]
    with keep_precision(tokens.device):
        values = to_float32(tokens)
        similarity = cosine(snap(values[worse]), snap(values[better]))
        partner = select_largest(similarity)
        closest = rank_descending(similarity.amax(-1))[:count].to(order.device)
    return worse[closest], better[partner.to(order.device)[closest]]
