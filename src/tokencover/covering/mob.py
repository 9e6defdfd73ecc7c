"""Multi-objective Balanced Covering: Algorithm 1 of the paper.

First as the paper writes it (`mob_literal`, the reference implementation), then fast (`mob`,
`mob_batch`), then its two steps alone: `nearest_points` (prompt centers) and `farthest_points`
(visual centers). On a CPU `search/` chooses sample by sample, on an accelerator `together/` for a
whole batch. All agree with the loop that compares everything, index for index.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.accelerator import cover_together
from tokencover.covering.checks import (
    Count,
    Samples,
    check_count,
    check_indices,
    check_mask,
    check_pair,
    check_samples,
    check_tokens,
)
from tokencover.covering.exact import (
    cosine,
    keep_precision,
    on_cpu,
    rank_candidates,
    rank_descending,
    select_largest,
    to_float32,
)
from tokencover.covering.search.scratch import ScratchBuffers, on_one_thread
from tokencover.covering.search.search import search_farthest
from tokencover.covering.search.vectors import CosineEstimates, Distinct, Vectors
from tokencover.covering.together import (
    Directions,
    choose_farthest_exactly,
    choose_farthest_together,
    keep_float32,
    rank_prompt_centers,
    read_together,
)
from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class Cover:
    """The kept tokens of one sample, as indices into its visual tokens (int64).

    Attributes
    ----------
    prompt_centers : Tensor
        S_p, most aligned with the prompt first.
    visual_centers : Tensor
        S_v, in order of choice: each the farthest from all before it.
    """

    prompt_centers: Tensor
    visual_centers: Tensor

    @property
    def indices(self) -> Tensor:
        """All kept tokens, ascending: the order in which they stay in the sequence."""
        return torch.cat([self.prompt_centers, self.visual_centers]).sort().values

    def __len__(self) -> int:
        return len(self.prompt_centers) + len(self.visual_centers)

    def __repr__(self) -> str:
        counts = f"{len(self.prompt_centers)} prompt + {len(self.visual_centers)} visual centers"
        return f"Cover({counts})"

    def _repr_html_(self) -> str:
        rows = (("prompt centers", self.prompt_centers), ("visual centers", self.visual_centers))
        cells = "".join(
            f"<tr><th>{name}</th><td>{len(centers)}</td>"
            f'<td style="text-align:left">{", ".join(map(str, centers.tolist()))}</td></tr>'
            for name, centers in rows
        )
        return f"<table><tbody>{cells}</tbody></table>"


def mob_literal(
    visual: Tensor, prompt: Tensor, *, budget: int, prompt_budget: int, fold: int
) -> Cover:
    """Algorithm 1, line by line: the reference implementation, for reading and for comparison.

    It compares every token with every center, in the dtype of the tokens. On snapped tokens
    (``snap(visual).grid``: whole numbers in float64) its cosines are exact, and its cover is that
    of `mob`. On float32 tokens it errs now and then where two distances are nearly equal.

    Parameters
    ----------
    visual, prompt : Tensor
        V ``(n, d)`` and P ``(l, d)``, l at least 1.
    budget, prompt_budget, fold : int
        K <= n, 1 <= Kp <= K, and k, as for `mob`.
    """
    if len(prompt) == 0 or prompt_budget < 1:
        raise InputError(
            "Algorithm 1 as written begins with a prompt center, but there are "
            f"{len(prompt)} prompt tokens and prompt_budget is {prompt_budget}: use tc.mob."
        )
    # Squared lengths. Products are divided by them where the paper divides the tokens: products of
    # whole numbers stay exact, and copies equal. The limit leaves the cosine of a zero token at 0.
    least = math.sqrt(torch.finfo(visual.dtype).tiny)
    squares = torch.linalg.vecdot(visual, visual).clamp(min=least)
    prompt_squares = torch.linalg.vecdot(prompt, prompt).clamp(min=least).unsqueeze(1)
    # Step 1: each prompt token proposes its k nearest; the Kp best of all proposals remain.
    similarity = prompt @ visual.T / (prompt_squares * squares).sqrt()
    proposed = rank_descending(similarity)[:, :fold].unique()
    score = similarity[:, proposed].amax(0)
    prompt_centers = proposed[rank_descending(score)[:prompt_budget]]
    # Step 2: farthest point sampling, beginning with the prompt centers.
    lengths = (squares.unsqueeze(1) * squares[prompt_centers]).sqrt()
    distance = (1 - visual @ visual[prompt_centers].T / lengths).amin(1)
    distance[prompt_centers] = -math.inf  # chosen; a copy of a chosen token is at distance 0 too
    chosen = list(prompt_centers)
    for _ in range(budget - len(chosen)):
        pick = select_largest(distance)
        chosen.append(pick)
        lengths = (squares * squares[pick]).sqrt()
        distance = torch.minimum(distance, 1 - visual @ visual[pick] / lengths)
        distance[pick] = -math.inf
    return Cover(prompt_centers, torch.stack(chosen)[len(prompt_centers) :])


def mob(
    visual: Tensor,
    prompt: Tensor,
    *,
    budget: Count,
    prompt_budget: Count,
    fold: Count,
    visual_mask: Tensor | None = None,
    prompt_mask: Tensor | None = None,
) -> Cover | list[Cover]:
    """Choose the visual tokens to keep: Multi-objective Balanced Covering.

    The result does not depend on the batch, the number of threads, the device or the dtype that
    holds the values. Of equally good tokens the one with the lowest index comes first; nothing is
    chosen twice, identical tokens included.

    Parameters
    ----------
    visual : Tensor
        V, ``(n, d)``, or ``(batch, n, d)``.
    prompt : Tensor
        P, ``(l, d)``, or ``(batch, l, d)``. May be empty: all centers are then visual ones.
    budget : int
        K, how many tokens to keep. With K >= n all are kept.
    prompt_budget : int
        Kp, how many of them are prompt centers, 0 <= Kp <= K. When the prompt proposes fewer
        candidates, the rest goes to the visual centers.
    fold : int
        k, how many nearest visual tokens each prompt token proposes.
    visual_mask, prompt_mask : Tensor, optional
        bool, ``visual.shape[:-1]`` and ``prompt.shape[:-1]``; False leaves a token out. This is
        how samples of different lengths share a batch.

    Returns
    -------
    Cover or list of Cover
        One cover for 2-D input, one per sample for 3-D input, each equal to the single run. For a
        batch, `budget`, `prompt_budget` and `fold` may be lists with one value per sample.
    """
    check_pair(visual, prompt, ranks=(2, 3))
    single = visual.dim() == 2
    if single:
        check_mask("visual_mask", visual_mask, visual)
        check_mask("prompt_mask", prompt_mask, prompt)
        visual, prompt = visual.unsqueeze(0), prompt.unsqueeze(0)
        visual_mask = None if visual_mask is None else visual_mask.unsqueeze(0)
        prompt_mask = None if prompt_mask is None else prompt_mask.unsqueeze(0)
    covers = mob_batch(
        visual,
        prompt,
        budget=budget,
        prompt_budget=prompt_budget,
        fold=fold,
        visual_mask=visual_mask,
        prompt_mask=prompt_mask,
    )
    return covers[0] if single else covers


def mob_batch(
    visual: Tensor,
    prompt: Tensor,
    *,
    budget: Count,
    prompt_budget: Count,
    fold: Count,
    visual_mask: Tensor | None = None,
    prompt_mask: Tensor | None = None,
) -> list[Cover]:
    """`mob` for 3-D input only; always returns a list.

    On a CPU each sample goes through the search of `covering/search/`. On an accelerator all
    samples go through the loop of Algorithm 1 together and share its kernels
    (`covering/together/`).
    """
    samples = check_samples(
        visual,
        prompt,
        budget=budget,
        prompt_budget=prompt_budget,
        fold=fold,
        visual_mask=visual_mask,
        prompt_mask=prompt_mask,
    )
    device = visual.device
    with keep_precision(device):
        covers = _cover_on_cpu(samples) if on_cpu(visual) else cover_together(samples)
        return [Cover(mine.to(device), rest.to(device)) for mine, rest in covers]


@on_one_thread
def _cover_on_cpu(samples: Samples) -> list[tuple[Tensor, Tensor]]:
    """Prompt centers and visual centers of each sample, in order of choice."""
    covers = []
    for sample in samples:
        counts = sample.counts
        visual, prompt = Distinct.of("visual", sample.visual), Vectors.of("prompt", sample.prompt)
        prompt_centers = choose_nearest(visual, prompt, counts.prompt_budget, counts.fold)
        rest = counts.budget - len(prompt_centers)
        visual_centers = search_farthest(visual, prompt_centers, rest)
        covers.append((sample.indices[prompt_centers], sample.indices[visual_centers]))
    return covers


# Step 1: k-fold nearest-neighbor covering.


def nearest_points(visual: Tensor, prompt: Tensor, *, budget: int, fold: int) -> Tensor:
    """Choose the visual tokens most aligned with the prompt, best first.

    Each prompt token proposes its `fold` nearest visual tokens; of all proposals the `budget` with
    the largest cosine to any prompt token remain.

    Parameters
    ----------
    visual, prompt : Tensor
        V ``(n, d)`` and P ``(l, d)``.
    budget : int
        Kp, how many tokens to choose; fewer come back when fewer are proposed.
    fold : int
        k.

    Returns
    -------
    Tensor
        Indices, int64.
    """
    check_pair(visual, prompt, ranks=(2,))
    budget, fold = check_count("budget", budget, 0), check_count("fold", fold, 1)
    with keep_precision(visual.device):
        if on_cpu(visual):
            order = _rank_on_cpu(to_float32(visual), to_float32(prompt), budget, fold)
            return order.to(visual.device)
        if budget == 0 or len(prompt) == 0:
            return torch.empty(0, dtype=torch.int64, device=visual.device)
        with keep_float32():
            pair = Directions.of(visual.detach()[None]), Directions.of(prompt.detach()[None])
            return _rank_on_accelerator(*pair, budget, fold)


@on_one_thread
def _rank_on_cpu(visual: Tensor, prompt: Tensor, budget: int, fold: int) -> Tensor:
    tokens, words = Distinct.of("visual", visual), Vectors.of("prompt", prompt)
    return choose_nearest(tokens, words, budget, fold)


def _rank_on_accelerator(visual: Directions, prompt: Directions, budget: int, fold: int) -> Tensor:
    order, available, proven = rank_prompt_centers(visual, prompt, [fold], budget)
    [fit], [count], [sure] = read_together(visual.fit & prompt.fit, available, proven)
    if not fit:
        rescaled = visual.rescale("visual"), prompt.rescale("prompt")
        return _rank_on_accelerator(*rescaled, budget, fold)
    if not sure:
        order, available, _ = rank_prompt_centers(visual, prompt, [fold], budget, everything=True)
        [[count]] = read_together(available)
    return order[0, :count]


def choose_nearest(visual: Distinct, prompt: Vectors, budget: int, fold: int) -> Tensor:
    """Choose the visual tokens of one sample most aligned with the prompt, on a CPU.

    Returns int64 indices, best first: `budget`, or as many as the prompt proposes.
    """
    if budget == 0 or len(prompt) == 0:
        return torch.empty(0, dtype=torch.int64)
    vectors, estimates = visual.vectors, CosineEstimates(visual.vectors)
    buffers = ScratchBuffers.of_this_thread("start")
    estimate = estimates.estimate(prompt.get_directions(), buffers=buffers).T
    if visual.has_copies:
        estimate = estimate.index_select(1, visual.slot)
    fold = min(fold, estimate.shape[1])
    last = estimate.topk(fold, dim=1).values[:, -1:]
    shortlist = (estimate >= last - estimates.tolerance).any(0).nonzero().squeeze(-1)
    alignment = estimate.index_select(1, shortlist).double()
    unclear = _mark_unclear(alignment, last, estimates.tolerance).nonzero().squeeze(-1)
    different, which = visual.slot[shortlist[unclear]].unique(return_inverse=True)
    words, buffers = prompt.snap(), ScratchBuffers.of_this_thread("top")
    blocks = different.split(tuning.CANDIDATE_BLOCK)
    exact = torch.cat([cosine(words, vectors.snap(block, buffers)) for block in blocks], dim=1)
    alignment[:, unclear] = exact[:, which]
    order, available = rank_candidates(alignment, torch.tensor(fold), budget)
    return shortlist[order[: int(available)]]


def _mark_unclear(alignment: Tensor, last: Tensor, tolerance: float) -> Tensor:
    """Which candidates are too close, by estimates, to a prompt token's last one or in rank."""
    at_the_edge = (alignment - last).abs_().le_(tolerance).any(0)
    score, order = alignment.amax(0).sort()
    tight = score.diff() <= tolerance
    none = tight.new_zeros(1)
    in_rank = torch.cat([none, tight]) | torch.cat([tight, none])
    return at_the_edge.index_put_((order,), in_rank, accumulate=True)


# Step 2: farthest point sampling.


def farthest_points(visual: Tensor, *, budget: int, start: Tensor | None = None) -> Tensor:
    """Choose tokens one by one, each the farthest from all centers so far.

    The distance of a token to the centers S is min over s in S of (1 - cos). Without a starting
    center the first choice is the token farthest from the mean token. A greedy choice: its covering
    radius is at most twice the smallest possible one.

    Parameters
    ----------
    visual : Tensor
        ``(n, d)``.
    budget : int
        How many tokens to choose; at most the ``n - len(start)`` there are.
    start : Tensor, optional
        Int64 indices of centers to begin with; they are not chosen again.

    Returns
    -------
    Tensor
        Indices in order of choice, int64.
    """
    check_tokens("visual", visual)
    budget = check_count("budget", budget, 0)
    centers = check_indices("start", start, len(visual)).to(visual.device).unique()
    count = min(budget, len(visual) - len(centers))
    with keep_precision(visual.device):
        if on_cpu(visual):
            order = _sample_on_cpu(to_float32(visual), centers.cpu(), count)
            return order.to(visual.device)
        with keep_float32():
            tokens = Directions.of(visual.detach().unsqueeze(0))
            none = centers.new_empty(0)
            return _sample_on_accelerator(tokens, centers, count) if count else none


@on_one_thread
def _sample_on_cpu(visual: Tensor, centers: Tensor, count: int) -> Tensor:
    return search_farthest(Distinct.of("visual", visual), centers, count)


def _sample_on_accelerator(tokens: Directions, centers: Tensor, count: int) -> Tensor:
    """The same for a batch of one and at least one token to choose."""
    kept, counts = centers.new_tensor([len(centers)]), centers.new_tensor([count])
    order, proven = choose_farthest_together(
        tokens, centers.unsqueeze(0), kept, counts, most=count, fewest=len(centers)
    )
    [fit], [sure] = read_together(tokens.fit, proven)
    if not fit:
        return _sample_on_accelerator(tokens.rescale("visual"), centers, count)
    return order[0] if sure else choose_farthest_exactly(tokens, centers, count)
