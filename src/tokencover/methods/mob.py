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

from tokencover.budget import (
    Decision,
    FixedSplit,
    Split,
    SplitRule,
    Tokens,
    resolve_mode,
    rule_of,
    tokens_left,
)
from tokencover.covering import (
    Cover,
    cosine,
    keep_precision,
    mob_batch,
    select_largest,
    snap,
    to_float32,
)
from tokencover.errors import InputError
from tokencover.methods.base import ActsOnce, Card, Choice, Details, LazyValue, View
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
        "auto" equals "paper" today; a `Split` is used as it is. `tc.CouplingSplit` and
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
        pruning_point="after 1 decoder block",
        signal="cosines of visual tokens with prompt words and with each other",
        paper="NeurIPS 2025",
        ours=True,
        departs=(
            "follows the paper's text; the authors' code (YChenL/MoB) differs in layer, prompt "
            "tokens, fold and count kept; [what we chose where the paper is silent](exactness.md)"
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
        if resolve_mode(self.budget_mode, self.published_mode) != "exact":
            raise InputError(
                f"a fixed split cannot follow budget_mode={self.budget_mode!r}: use 'exact', or "
                "a rule such as split='paper'."
            )

    def choose(self, view: View) -> Choice:
        """Algorithm 1 on every sample, or on every image of every sample."""
        groups = _group_tokens(view, self.per)
        rule = self.rule
        decisions = [rule.decide(self._find_budget(view, group), group.tokens) for group in groups]
        splits = [decision.split for decision in decisions]
        covers = mob_batch(
            *_gather_states(view, groups),
            budget=[split.budget for split in splits],
            prompt_budget=[split.prompt_budget for split in splits],
            fold=[split.fold for split in splits],
            visual_mask=_mark_tokens(view, groups),
            prompt_mask=_mark_words(view, groups),
        )
        parts = [
            Part(group.sample, cover, decision, group.tokens)
            for group, cover, decision in zip(groups, covers, decisions, strict=True)
        ]
        return _join_parts(view, parts, rule.name)

    def _find_budget(self, view: View, group: Group) -> int:
        total = len(group.tokens.visual)
        return tokens_left(
            self.budget,
            resolve_mode(self.budget_mode, self.published_mode),
            total=total,
            others=group.others,
            schedule=lambda left: self.schedule(left, total, view.num_layers),
            cost=view.cost,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What one budget was spent on: a sample, or one of its images."""

    sample: int
    cover: Cover
    decision: Decision
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Group:
    """What one budget is spent on: the visual tokens of a sample, or of one of its images.

    Attributes
    ----------
    sample : int
        The sample.
    mask : Tensor or None
        ``(n,)`` bool, its tokens; None for all that the sample has.
    tokens : Tokens
        The same, and the prompt words.
    others : int
        Number of all other tokens of the sample.
    """

    sample: int
    mask: Tensor | None
    tokens: Tokens
    others: int


def _group_tokens(view: View, per: str) -> list[Group]:
    """Read the sizes of all samples at once, and cut their tokens out: rows begin at the left."""
    is_video = (view.video | ~view.mask).all(-1)
    sizes = view.mask.sum(-1), view.prompt_mask.sum(-1), view.others, is_video
    numbers = torch.stack([each.to(view.mask.device).long() for each in sizes], dim=-1).tolist()
    groups = []
    for sample, (size, words, others, video) in enumerate(numbers):
        states = view.hidden_states[sample, :size].detach()
        prompt = view.prompt[sample, :words].detach()
        if per == "prompt":
            tokens = Tokens(states, prompt, "video" if video else "image")
            groups.append(Group(sample, None, tokens, others))
            continue
        for medium in view.medium[sample, :size].unique().tolist():
            mask = view.mask[sample] & (view.medium[sample] == medium)
            mine = mask[:size]
            moves = bool(view.video[sample, :size][mine].all())
            tokens = Tokens(states[mine], prompt, "video" if moves else "image")
            groups.append(Group(sample, mask, tokens, others))
    return groups


def _gather_states(view: View, groups: list[Group]) -> tuple[Tensor, Tensor]:
    """Visual tokens and prompt words of every group; nothing is copied if groups are samples."""
    samples = [group.sample for group in groups]
    if samples == list(range(len(view.hidden_states))):
        return view.hidden_states, view.prompt
    return view.hidden_states[samples], view.prompt[samples]


def _mark_tokens(view: View, groups: list[Group]) -> Tensor | None:
    """Which visual tokens belong to each group, None for all."""
    if all(len(group.tokens.visual) == view.mask.shape[1] for group in groups):
        return None
    masks = [view.mask[group.sample] if group.mask is None else group.mask for group in groups]
    return torch.stack(masks)


def _mark_words(view: View, groups: list[Group]) -> Tensor | None:
    """Which prompt words each group has, None for all."""
    if all(len(group.tokens.prompt) == view.prompt_mask.shape[1] for group in groups):
        return None
    return view.prompt_mask[[group.sample for group in groups]]


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
                center_prompt_positions=tell_center_words(view, sample, prompt_centers),
            )
        )
    return Choice(kept, details=details)


def tell_coupling(tokens: list[Tokens]) -> Any:
    """The largest eta of some tokens; if no rule asked for it, it is measured when it is read."""
    later = LazyValue(_find_largest_coupling, tokens)
    return later() if all(each.knows_coupling for each in tokens) else later


def _find_largest_coupling(tokens: list[Tokens]) -> float | None:
    known = [each.coupling for each in tokens if each.coupling is not None]
    return max(known) if known else None


def tell_center_words(view: View, sample: int, centers: Tensor) -> LazyValue:
    """For each prompt centre the word that speaks for it; looked for when it is read.

    A word is told by its place in the whole sequence, int64. It is the one with the largest cosine
    to the centre, which is what the centre was ranked by. Ties go to the first word.
    """
    return LazyValue(
        _find_nearest_words,
        view.hidden_states[sample, centers.to(view.hidden_states.device)].detach(),
        view.prompt[sample].detach(),
        view.prompt_mask[sample],
        view.prompt_positions[sample],
    )


def _find_nearest_words(tokens: Tensor, words: Tensor, spoken: Tensor, positions: Tensor) -> Tensor:
    words, positions = words[spoken.to(words.device)], positions[spoken.to(positions.device)]
    if len(tokens) == 0:
        return positions[:0]
    with keep_precision(tokens.device):
        alignment = cosine(snap(to_float32(tokens)), snap(to_float32(words)))
        nearest = select_largest(alignment)
    return positions[nearest.to(positions.device)]
