"""What `mob` is asked for, checked: tokens, masks and counts of every sample of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.checks import Count, check_counts, check_mask, check_pair
from tokencover.covering.precision import find_float64_device, to_float32
from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """K, Kp and k of one sample, K and Kp no more than the tokens it has."""

    budget: int
    prompt_budget: int
    fold: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample without what its masks leave out.

    Attributes
    ----------
    visual, prompt : Tensor
        ``(n, d)`` and ``(l, d)`` float32.
    places : Tensor
        ``(n,)`` int64, where its visual tokens stand in the batch.
    counts : SampleCounts
        How many to choose.
    """

    visual: Tensor
    prompt: Tensor
    places: Tensor
    counts: SampleCounts


@dataclass(frozen=True, slots=True)
class Samples:
    """A batch, on a device that has float64.

    Attributes
    ----------
    visual, prompt : Tensor
        ``(b, n, d)`` and ``(b, l, d)`` float32.
    visual_mask, prompt_mask : Tensor
        ``(b, n)`` and ``(b, l)`` bool, which tokens exist.
    counts : list of SampleCounts
        How many to choose of each sample.
    """

    visual: Tensor
    prompt: Tensor
    visual_mask: Tensor
    prompt_mask: Tensor
    counts: list[SampleCounts]

    def __iter__(self) -> Iterator[Sample]:
        for visual, prompt, exists, spoken, counts in zip(
            self.visual, self.prompt, self.visual_mask, self.prompt_mask, self.counts, strict=True
        ):
            places = exists.nonzero().squeeze(-1)
            yield Sample(
                visual if len(places) == len(visual) else visual[places],
                prompt if bool(spoken.all()) else prompt[spoken],
                places,
                counts,
            )


def check_samples(
    visual: Tensor,
    prompt: Tensor,
    *,
    budget: Count,
    prompt_budget: Count,
    fold: Count,
    visual_mask: Tensor | None,
    prompt_mask: Tensor | None,
) -> Samples:
    """Refuse what cannot be covered, and fill in what was left out; see `mob`."""
    check_pair(visual, prompt, ranks=(3,))
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    counts = _check_sample_counts(len(visual), budget, prompt_budget, fold)
    visual_mask = _mark_all(visual) if visual_mask is None else visual_mask
    prompt_mask = _mark_all(prompt) if prompt_mask is None else prompt_mask
    sizes: list[int] = visual_mask.sum(-1).tolist()
    if 0 in sizes:
        raise InputError(
            f"visual_mask leaves sample {sizes.index(0)} without a visual token: "
            "there is nothing to choose from. Skip samples without a picture."
        )
    place = find_float64_device(visual.device)
    return Samples(
        to_float32(visual),
        to_float32(prompt),
        visual_mask.to(place),
        prompt_mask.to(place),
        [
            SampleCounts(min(each.budget, size), min(each.prompt_budget, size), each.fold)
            for each, size in zip(counts, sizes, strict=True)
        ],
    )


def _check_sample_counts(
    samples: int, budget: Count, prompt_budget: Count, fold: Count
) -> list[SampleCounts]:
    budgets = check_counts("budget", budget, 1, samples)
    prompt_budgets = check_counts("prompt_budget", prompt_budget, 0, samples)
    folds = check_counts("fold", fold, 1, samples)
    for total, part in zip(budgets, prompt_budgets, strict=True):
        if part > total:
            raise InputError(
                f"prompt_budget {part} is more than the whole budget {total}: "
                "prompt centres are part of the budget."
            )
    return [SampleCounts(*each) for each in zip(budgets, prompt_budgets, folds, strict=True)]


def _mark_all(tokens: Tensor) -> Tensor:
    return torch.ones(tokens.shape[:-1], dtype=torch.bool, device=tokens.device)
