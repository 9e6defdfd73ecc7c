"""Multi-objective Balanced Covering: Algorithm 1 of the paper.

Prompt centres cover what was asked (`nearest.py`), visual centres cover everything else
(`farthest_lazy.py` on a CPU, `farthest_dense.py` elsewhere; they agree index for index).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.checks import (
    Count,
    check_finite,
    check_mask,
    check_pair,
    counts_per_sample,
)
from tokencover.covering.estimate import Cloud
from tokencover.covering.exact import Points, cosine, snap
from tokencover.covering.farthest_dense import farthest_batch
from tokencover.covering.farthest_lazy import farthest_lazy
from tokencover.covering.nearest import best_candidates, nearest_cover
from tokencover.covering.precision import plain, undisturbed, with_float64
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


@dataclass(frozen=True, slots=True)
class _Plan:
    """K, Kp and k of one sample."""

    budget: int
    prompt_budget: int
    fold: int


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

    Deterministic to the index: the result depends neither on the batch, the number of threads, the
    device nor the dtype that holds the values. Ties go to the lowest index; nothing is chosen
    twice, identical tokens included.

    Parameters
    ----------
    visual : Tensor
        V, ``(n, d)``, or ``(batch, n, d)``.
    prompt : Tensor
        P, ``(l, d)``, or ``(batch, l, d)``. May be empty: all centres are then visual ones.
    budget : int
        K, how many tokens to keep. With K >= n all are kept.
    prompt_budget : int
        Kp, how many of them are prompt centres, 0 <= Kp <= K. When the prompt proposes fewer
        candidates, the rest goes to the visual centres.
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
    if visual.dim() == 3:
        return mob_batch(
            visual,
            prompt,
            budget=budget,
            prompt_budget=prompt_budget,
            fold=fold,
            visual_mask=visual_mask,
            prompt_mask=prompt_mask,
        )
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    return mob_batch(
        visual.unsqueeze(0),
        prompt.unsqueeze(0),
        budget=budget,
        prompt_budget=prompt_budget,
        fold=fold,
        visual_mask=None if visual_mask is None else visual_mask.unsqueeze(0),
        prompt_mask=None if prompt_mask is None else prompt_mask.unsqueeze(0),
    )[0]


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
    """`mob` for 3-D input only, always a list; see there."""
    check_pair(visual, prompt, ranks=(3,))
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    plans = _plans(len(visual), budget, prompt_budget, fold)
    visual_mask = _all_true(visual) if visual_mask is None else visual_mask
    prompt_mask = _all_true(prompt) if prompt_mask is None else prompt_mask
    sizes: list[int] = visual_mask.sum(-1).tolist()
    if 0 in sizes:
        raise InputError(
            f"visual_mask leaves sample {sizes.index(0)} without a visual token: "
            "there is nothing to choose from. Skip samples without a picture."
        )
    plans = [
        _Plan(min(plan.budget, size), min(plan.prompt_budget, size), plan.fold)
        for plan, size in zip(plans, sizes, strict=True)
    ]
    home = visual.device
    place = with_float64(home)
    with undisturbed(home):
        run = _one_by_one if place.type == "cpu" else cover_together
        masks = visual_mask.to(place), prompt_mask.to(place)
        covers = list(run(plain(visual), plain(prompt), *masks, plans))
    return [Cover(c.prompt_centers.to(home), c.visual_centers.to(home)) for c in covers]


def _plans(samples: int, budget: Count, prompt_budget: Count, fold: Count) -> list[_Plan]:
    budgets = counts_per_sample("budget", budget, 1, samples)
    prompt_budgets = counts_per_sample("prompt_budget", prompt_budget, 0, samples)
    folds = counts_per_sample("fold", fold, 1, samples)
    for total, part in zip(budgets, prompt_budgets, strict=True):
        if part > total:
            raise InputError(
                f"prompt_budget {part} is more than the whole budget {total}: "
                "prompt centres are part of the budget."
            )
    return [_Plan(*each) for each in zip(budgets, prompt_budgets, folds, strict=True)]


def _all_true(tokens: Tensor) -> Tensor:
    return torch.ones(tokens.shape[:-1], dtype=torch.bool, device=tokens.device)


def _one_by_one(
    visual: Tensor, prompt: Tensor, visual_mask: Tensor, prompt_mask: Tensor, plans: list[_Plan]
) -> Iterable[Cover]:
    """On a CPU each sample follows its own shortcuts."""
    for tokens, words, exists, spoken, plan in zip(
        visual, prompt, visual_mask, prompt_mask, plans, strict=True
    ):
        place = exists.nonzero().squeeze(-1)
        whole = len(place) == len(tokens)
        cloud = Cloud.of("visual", tokens if whole else tokens[place])
        question = Cloud.of("prompt", words if bool(spoken.all()) else words[spoken])
        prompt_centers = nearest_cover(cloud, question, plan.prompt_budget, plan.fold)
        rest = plan.budget - len(prompt_centers)
        visual_centers = farthest_lazy(cloud, prompt_centers, rest)
        yield Cover(place[prompt_centers], place[visual_centers])


def cover_together(
    visual: Tensor, prompt: Tensor, visual_mask: Tensor, prompt_mask: Tensor, plans: list[_Plan]
) -> list[Cover]:
    """On an accelerator all samples share each kernel; the host reads once, before the loop."""
    visual = visual.masked_fill(~visual_mask.unsqueeze(-1), 0.0)
    prompt = prompt.masked_fill(~prompt_mask.unsqueeze(-1), 0.0)
    check_finite("visual", visual)
    check_finite("prompt", prompt)
    points = snap(visual)
    start, found = _prompt_centers(points, snap(prompt), visual_mask, prompt_mask, plans)
    kept = [min(plan.prompt_budget, have) for plan, have in zip(plans, found.tolist(), strict=True)]
    rests = [plan.budget - have for plan, have in zip(plans, kept, strict=True)]
    places = torch.arange(start.shape[1], device=visual.device)
    used = places < torch.tensor(kept, device=visual.device).unsqueeze(-1)
    order = farthest_batch(points, visual_mask, start, used, max(rests))
    return [
        Cover(start[sample, :prompt_count], order[sample, :visual_count])
        for sample, (prompt_count, visual_count) in enumerate(zip(kept, rests, strict=True))
    ]


def _prompt_centers(
    points: Points, prompt: Points, visual_mask: Tensor, prompt_mask: Tensor, plans: list[_Plan]
) -> tuple[Tensor, Tensor]:
    most = max(plan.prompt_budget for plan in plans)
    if most == 0 or prompt_mask.shape[1] == 0:
        device = visual_mask.device
        none = torch.zeros(len(plans), dtype=torch.int64, device=device)
        return torch.empty(len(plans), 0, dtype=torch.int64, device=device), none
    counts = prompt_mask.unsqueeze(2) & visual_mask.unsqueeze(1)
    alignment = cosine(prompt, points).masked_fill(~counts, -math.inf)
    folds = torch.tensor([plan.fold for plan in plans], device=visual_mask.device)
    return best_candidates(alignment, folds, most)
