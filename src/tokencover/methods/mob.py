"""MoB: Multi-objective Balanced Covering (NeurIPS 2025).

Place: before a decoder block, by default after one block has run. Signal: the cosine geometry of
visual tokens and the user's words; no attention is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tokencover.budget import Decision, FixedSplit, Split, SplitRule, Tokens, rule_of, tokens_left
from tokencover.covering import (
    Cover,
    cosine,
    find_largest,
    keep_precision,
    mob_batch,
    snap,
    to_float32,
)
from tokencover.errors import InputError
from tokencover.methods.base import ActsOnce, Card, Choice, Details, Later, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class MoB(ActsOnce):
    """Keep the visual tokens that cover the prompt and the picture.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a share of those there are. For
        `budget_mode` and `positions` see `BudgetedMethod`; the paper's are the defaults.
    split : str, Split or SplitRule
        How K is divided. "paper" is the paper's table without a prior, "strong" and "weak" its
        tables for known coupling, "balanced" divides each sample's budget by its own geometry,
        "auto" is what we recommend; a `Split` is used as it is. `tc.CouplingSplit` and
        `tc.OnlineSplit` choose between strong and weak sample by sample.
    after : int
        How many decoder blocks run before pruning. 1 is the paper's setting (its "layer 2"); 0 is
        before the decoder.
    per : "prompt" or "image"
        What the budget is for when a prompt has several images or videos: all of them together, or
        each one.
    """

    name: ClassVar[str] = "mob"
    card: ClassVar[Card] = Card(
        title="MoB",
        year=2025,
        objective="both",
        place="after 1 decoder block",
        signal="cosines of visual tokens with prompt words and with each other",
        paper="NeurIPS 2025",
        ours=True,
        departs=(
            "there is no released code; [what we chose where the paper is silent](exactness.md)"
        ),
    )

    split: str | Split | SplitRule = "paper"
    after: int = 1
    per: Literal["prompt", "image"] = "prompt"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.rule
        if isinstance(rule, FixedSplit):
            self._check_fixed(rule.split)
        rule.check(self.after)
        if self.per not in ("prompt", "image"):
            raise InputError(f"per must be 'prompt' or 'image', got {self.per!r}.")
        if self.per == "image" and self.budget_mode == "flops":
            raise InputError(
                "budget_mode='flops' is a budget for the whole prompt: it needs per='prompt'."
            )

    @cached_property
    def rule(self) -> SplitRule:
        """What `split` means; a rule that learns is this method's own."""
        return rule_of(self.split)

    def _check_fixed(self, split: Split) -> None:
        if split.budget != self.budget:
            raise InputError(
                f"split {split} spends {split.budget} tokens, the budget is {self.budget}: make "
                "them equal."
            )
        if self.budget_mode != "exact":
            raise InputError(
                f"a fixed split cannot follow budget_mode={self.budget_mode!r}: use 'exact', or "
                "a rule such as split='paper'."
            )

    def choose(self, view: View) -> Choice:
        """Algorithm 1 on every sample, or on every image of every sample."""
        groups = _group_tokens(view, self.per)
        masks = torch.stack([mask for _, mask in groups])
        samples = torch.tensor([sample for sample, _ in groups], device=view.mask.device)
        tokens = [self._gather_tokens(view, sample, mask) for sample, mask in groups]
        rule = self.rule
        decisions = [
            rule.decide(self._find_budget(view, sample, len(each.visual)), each)
            for (sample, _), each in zip(groups, tokens, strict=True)
        ]
        splits = [decision.split for decision in decisions]
        covers = mob_batch(
            view.states[samples],
            view.prompt[samples],
            budget=[split.budget for split in splits],
            prompt_budget=[split.prompt_budget for split in splits],
            fold=[split.fold for split in splits],
            visual_mask=masks,
            prompt_mask=view.prompt_mask[samples],
        )
        parts = [
            Part(*part) for part in zip(samples.tolist(), covers, decisions, tokens, strict=True)
        ]
        return _join_parts(view, parts, rule.name)

    def _gather_tokens(self, view: View, sample: int, mask: Tensor) -> Tokens:
        return Tokens(
            view.states[sample, mask].detach(),
            view.prompt[sample, view.prompt_mask[sample]].detach(),
            "video" if bool(view.video[sample, mask].all()) else "image",
        )

    def _find_budget(self, view: View, sample: int, total: int) -> int:
        return tokens_left(
            self.budget,
            self.budget_mode,
            total=total,
            others=int(view.others[sample]),
            schedule=lambda left: self.schedule(left, total, view.depth),
            cost=view.cost,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What one budget was spent on: a sample, or one of its images."""

    sample: int
    cover: Cover
    decision: Decision
    tokens: Tokens


def _group_tokens(view: View, per: str) -> list[tuple[int, Tensor]]:
    """What one budget is spent on: (sample, mask of its visual tokens)."""
    if per == "prompt":
        return list(enumerate(view.mask))
    return [
        (sample, mask & (view.medium[sample] == medium))
        for sample, mask in enumerate(view.mask)
        for medium in view.medium[sample, mask].unique().tolist()
    ]


def _join_parts(view: View, parts: list[Part], rule: str) -> Choice:
    """Put the parts of one sample together again."""
    kept, details = [], []
    for sample in range(len(view.mask)):
        mine = [part for part in parts if part.sample == sample]
        prompt_centers = torch.cat([part.cover.prompt_centers for part in mine])
        visual_centers = torch.cat([part.cover.visual_centers for part in mine])
        kept.append(torch.cat([prompt_centers, visual_centers]))
        groups = [part.decision.group for part in mine]
        details.append(
            Details(
                prompt_centers=prompt_centers,
                visual_centers=visual_centers,
                coupling=tell_coupling([part.tokens for part in mine]),
                rule=rule,
                split=[part.decision.split for part in mine],
                groups=groups,
                group=groups[0] if len(set(groups)) == 1 else None,
                centers_words=tell_center_words(view, sample, prompt_centers),
            )
        )
    return Choice(kept, details=details)


def tell_coupling(tokens: list[Tokens]) -> Any:
    """The largest eta of some tokens; if no rule asked for it, it is measured when it is read."""
    later = Later(_find_largest_coupling, tokens)
    return later() if all(each.knows_coupling for each in tokens) else later


def _find_largest_coupling(tokens: list[Tokens]) -> float | None:
    known = [each.coupling for each in tokens if each.coupling is not None]
    return max(known) if known else None


def tell_center_words(view: View, sample: int, centers: Tensor) -> Later:
    """For each prompt centre the word that speaks for it; looked for when it is read.

    A word is told by its place in the whole sequence, int64. It is the one with the largest cosine
    to the centre, which is what the centre was ranked by. Ties go to the first word.
    """
    spoken = view.prompt_mask[sample]
    return Later(
        _find_nearest_words,
        view.states[sample, centers.to(view.states.device)].detach(),
        view.prompt[sample, spoken.to(view.prompt.device)].detach(),
        view.prompt_positions[sample, spoken],
    )


def _find_nearest_words(tokens: Tensor, words: Tensor, positions: Tensor) -> Tensor:
    if len(tokens) == 0:
        return positions[:0]
    with keep_precision(tokens.device):
        alignment = cosine(snap(to_float32(tokens)), snap(to_float32(words)))
        nearest = find_largest(alignment)
    return positions[nearest.to(positions.device)]
