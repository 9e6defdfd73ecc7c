"""Multi-objective Balanced Covering: Algorithm 1 of the paper.

First as the paper writes it (`mob_literal`, the reference implementation), then fast (`mob`,
`mob_batch`), with the same result index for index.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.accelerator import cover_together
from tokencover.covering.checks import Count, Samples, check_mask, check_pair, check_samples
from tokencover.covering.exact import keep_precision, on_cpu, rank_descending, select_largest
from tokencover.covering.nearest import choose_nearest
from tokencover.covering.search.scratch import on_one_thread
from tokencover.covering.search.search import search_farthest
from tokencover.covering.search.vectors import Distinct, Vectors
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
