"""MoB: Multi-objective Balanced Covering (NeurIPS 2025).

Place: before a decoder block, by default after one block has run. Signal: the cosine geometry of
visual tokens and the user's words; no attention is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tokencover.budget import Budget, Split, paper_split, tokens_to_keep
from tokencover.covering import Cover, coupling, mob_batch
from tokencover.errors import InputError
from tokencover.methods.base import Choice, Method, View

SplitRule = Literal["paper", "strong", "weak"] | Split


@dataclass(frozen=True)
class MoB(Method):
    """Keep the visual tokens that cover the prompt and the picture.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are.
    split : "paper", "strong", "weak" or Split
        How K is divided. "paper" is the paper's table without a prior, "strong" and "weak" its
        tables for known coupling; a `Split` is used as it is.
    after : int
        How many decoder blocks run before pruning. 1 is the paper's setting (its "layer 2"); 0 is
        before the decoder.
    per : "prompt" or "image"
        What the budget is for when a prompt has several images or videos: all of them together, or
        each one.
    """

    budget: Budget
    split: SplitRule = "paper"
    after: int = 1
    per: Literal["prompt", "image"] = "prompt"

    def __post_init__(self) -> None:
        tokens_to_keep(self.budget, total=1)
        if isinstance(self.split, Split):
            if self.split.budget != self.budget:
                raise InputError(
                    f"split {self.split} spends {self.split.budget} tokens, the budget is "
                    f"{self.budget}: make them equal."
                )
        elif self.split not in ("paper", "strong", "weak"):
            raise InputError(
                f"split must be 'paper', 'strong', 'weak' or a tc.Split, got {self.split!r}."
            )
        if self.after < 0:
            raise InputError(f"after must be at least 0 blocks, got {self.after}.")
        if self.per not in ("prompt", "image"):
            raise InputError(f"per must be 'prompt' or 'image', got {self.per!r}.")

    def blocks(self, depth: int) -> Sequence[int]:
        """Before the block that follows the first `after` ones."""
        if self.after >= depth:
            raise InputError(
                f"after={self.after} leaves no block to prune for: this model has {depth} blocks."
            )
        return (self.after,)

    def choose(self, view: View) -> Choice:
        """Algorithm 1 on every sample, or on every image of every sample."""
        groups = _groups(view, self.per)
        masks = torch.stack([mask for _, mask in groups])
        samples = torch.tensor([sample for sample, _ in groups], device=view.mask.device)
        splits = [self._split(view, sample, mask) for sample, mask in groups]
        visual, prompt = view.states[samples], view.prompt[samples]
        prompt_mask = view.prompt_mask[samples]
        covers = mob_batch(
            visual,
            prompt,
            budget=[split.budget for split in splits],
            prompt_budget=[split.prompt_budget for split in splits],
            fold=[split.fold for split in splits],
            visual_mask=masks,
            prompt_mask=prompt_mask,
        )
        etas = [
            float(coupling(visual[i, masks[i]], prompt[i, prompt_mask[i]]))
            if bool(prompt_mask[i].any())
            else None
            for i in range(len(groups))
        ]
        return _joined(len(view.mask), samples.tolist(), covers, splits, etas)

    def _split(self, view: View, sample: int, mask: torch.Tensor) -> Split:
        total = int(mask.sum())
        if isinstance(self.split, Split):
            return self.split
        return paper_split(
            self.budget,
            total,
            coupling=None if self.split == "paper" else self.split,
            modality="video" if bool(view.video[sample, mask].all()) else "image",
        )


def _groups(view: View, per: str) -> list[tuple[int, torch.Tensor]]:
    """What one budget is spent on: (sample, mask of its visual tokens)."""
    if per == "prompt":
        return list(enumerate(view.mask))
    return [
        (sample, mask & (view.medium[sample] == medium))
        for sample, mask in enumerate(view.mask)
        for medium in view.medium[sample, mask].unique().tolist()
    ]


def _joined(
    count: int,
    samples: list[int],
    covers: list[Cover],
    splits: list[Split],
    etas: list[float | None],
) -> Choice:
    """Put the covers of one sample together again."""
    kept, details = [], []
    for sample in range(count):
        mine = [place for place, owner in enumerate(samples) if owner == sample]
        prompt_centers = torch.cat([covers[place].prompt_centers for place in mine])
        visual_centers = torch.cat([covers[place].visual_centers for place in mine])
        kept.append(torch.cat([prompt_centers, visual_centers]))
        known = [eta for place in mine if (eta := etas[place]) is not None]
        details.append(
            {
                "prompt_centers": prompt_centers,
                "visual_centers": visual_centers,
                "coupling": max(known) if known else None,
                "split": [splits[place] for place in mine],
            }
        )
    return Choice(kept, details=details)
