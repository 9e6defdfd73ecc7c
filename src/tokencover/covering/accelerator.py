"""Algorithm 1 on an accelerator: all samples share each kernel, and the host reads values twice.

First, between the two steps, the number of prompt centers and whether all tokens are finite; then,
at the end, whether everything is proven. What is not, where tokens are too much alike, is done
again in exact arithmetic. (Tokens so large or so small that float32 cannot square them are scaled,
which takes one more reading.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.checks import SampleCounts, Samples
from tokencover.covering.together import (
    Directions,
    choose_farthest_exactly,
    choose_farthest_together,
    keep_float32,
    rank_prompt_centers,
    read_together,
)


def cover_together(samples: Samples) -> list[tuple[Tensor, Tensor]]:
    """Choose the prompt centers and the visual centers of every sample, each in order of choice."""
    with keep_float32():
        visual = Directions.of(samples.visual, samples.visual_mask)
        prompt = Directions.of(samples.prompt, samples.prompt_mask)
        return _choose_visual_centers(_choose_prompt_centers(visual, prompt, samples))


@dataclass(frozen=True, slots=True)
class _FirstStep:
    """Prompt centers of every sample, ``(b, s)`` int64, best first.

    `available` is the ``(b,)`` number of candidates, `fewest` as many prompt centers as the host
    knows of.
    """

    visual: Directions
    order: Tensor
    counts: list[SampleCounts]
    available: Tensor
    fewest: list[int]

    @property
    def kept(self) -> Tensor:
        """``(b,)`` int64, number of prompt centers."""
        return torch.minimum(
            self.available, self._to_tensor([c.prompt_budget for c in self.counts])
        )

    @property
    def wanted(self) -> Tensor:
        """``(b,)`` int64, number of visual centers."""
        return self._to_tensor([counts.budget for counts in self.counts]) - self.kept

    @property
    def most_wanted(self) -> int:
        """No sample wants more visual centers."""
        pairs = zip(self.counts, self.fewest, strict=True)
        return max(counts.budget - fewest for counts, fewest in pairs)

    def _to_tensor(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self.available.device)


def _choose_prompt_centers(visual: Directions, prompt: Directions, samples: Samples) -> _FirstStep:
    tokens = visual.exists.shape[1]
    most = min(max(counts.prompt_budget for counts in samples.counts), tokens)
    folds = [counts.fold for counts in samples.counts]
    none = torch.zeros(len(folds), dtype=torch.int64, device=visual.exists.device)
    order, available, proven = none.new_empty(len(folds), 0), none, none == 0
    if most and prompt.exists.shape[1]:
        order, available, proven = rank_prompt_centers(visual, prompt, folds, most)
    sizes = visual.exists.sum(-1)
    fit, have, size, sure = read_together(visual.fit & prompt.fit, available, sizes, proven)
    if not all(fit):
        rescaled = visual.rescale("visual"), prompt.rescale("prompt")
        return _choose_prompt_centers(*rescaled, samples)
    counts = samples.cut_counts(size)
    if all(sure):
        kept = [min(each.prompt_budget, many) for each, many in zip(counts, have, strict=True)]
        return _FirstStep(visual, order, counts, available, kept)
    # Too many tokens are alike for a shortlist. Then a word proposes at least as many as it may.
    order, available, _ = rank_prompt_centers(visual, prompt, folds, most, everything=True)
    fewest = [
        min(each.prompt_budget, each.fold, many) for each, many in zip(counts, have, strict=True)
    ]
    return _FirstStep(visual, order, counts, available, fewest)


def _choose_visual_centers(step: _FirstStep) -> list[tuple[Tensor, Tensor]]:
    visual, most, kept = step.visual, step.most_wanted, step.kept
    if most == 0:
        return [(row[:count], row[:0]) for row, count in zip(step.order, step.fewest, strict=True)]
    order, proven = choose_farthest_together(
        visual, step.order, kept, step.wanted, most=most, fewest=min(step.fewest)
    )
    sure, counts = read_together(proven, kept)
    found = []
    for sample, (count, each) in enumerate(zip(counts, step.counts, strict=True)):
        mine, rest = step.order[sample, :count], each.budget - count
        if sure[sample]:
            found.append((mine, order[sample, :rest]))
        else:
            found.append((mine, choose_farthest_exactly(visual.sample(sample), mine, rest)))
    return found
