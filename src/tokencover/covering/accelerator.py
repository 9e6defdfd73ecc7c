"""Algorithm 1 on an accelerator: all samples share each kernel, in float64.

The host reads values once, between the two steps; see `farthest.py` for the loop of step 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.covering.checks import Samples, check_finite
from tokencover.covering.exact import Points, cosine, snap
from tokencover.covering.farthest import choose_farthest_together
from tokencover.covering.nearest import rank_candidates


def cover_together(samples: Samples) -> list[tuple[Tensor, Tensor]]:
    """Choose the prompt centres and the visual centres of every sample, each in order of choice."""
    visual = samples.visual.masked_fill(~samples.visual_mask.unsqueeze(-1), 0.0)
    prompt = samples.prompt.masked_fill(~samples.prompt_mask.unsqueeze(-1), 0.0)
    check_finite("visual", visual)
    check_finite("prompt", prompt)
    points = snap(visual)
    start, available = _rank_prompt_centers(points, snap(prompt), samples)
    pairs = zip(samples.counts, available.tolist(), strict=True)
    kept = [min(counts.prompt_budget, have) for counts, have in pairs]
    rests = [counts.budget - have for counts, have in zip(samples.counts, kept, strict=True)]
    places = torch.arange(start.shape[1], device=visual.device)
    used = places < torch.tensor(kept, device=visual.device).unsqueeze(-1)
    order = choose_farthest_together(points, samples.visual_mask, start, used, max(rests))
    return [
        (start[sample, :prompt_count], order[sample, :visual_count])
        for sample, (prompt_count, visual_count) in enumerate(zip(kept, rests, strict=True))
    ]


def _rank_prompt_centers(points: Points, prompt: Points, samples: Samples) -> tuple[Tensor, Tensor]:
    """Candidates for prompt centres, best first, ``(b, most)``, and their number, ``(b,)``."""
    most = max(counts.prompt_budget for counts in samples.counts)
    device = samples.visual_mask.device
    if most == 0 or samples.prompt_mask.shape[1] == 0:
        none = torch.zeros(len(samples.counts), dtype=torch.int64, device=device)
        return none.new_empty(len(samples.counts), 0), none
    exists = samples.prompt_mask.unsqueeze(2) & samples.visual_mask.unsqueeze(1)
    alignment = cosine(prompt, points).masked_fill(~exists, -math.inf)
    folds = torch.tensor([counts.fold for counts in samples.counts], device=device)
    return rank_candidates(alignment, folds, most)
