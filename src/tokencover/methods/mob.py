"""MoB: Multi-objective Balanced Covering (NeurIPS 2025)."""

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
    """Keep the visual tokens that cover the prompt and the image.

    Algorithm 1 of the paper (NeurIPS 2025). The defaults are the paper's settings.

    Parameters
    ----------
    budget : int or float
        K, how many visual tokens to keep: a count, or a fraction of all. For `budget_mode` and
        `positions` see `BudgetedMethod`.
    split : str, Split or SplitRule
        How K is divided between prompt and image. "paper" is the paper's table without a prior,
        "strong" and "weak" its tables for known coupling, "balanced" divides each sample's budget
        by its geometry, "auto" equals "paper" today; a `Split` is fixed. `tc.CouplingSplit` and
        `tc.OnlineSplit` choose between strong and weak for each sample.
    after : int
        How many decoder layers run before pruning. 1 is the paper's setting (its "layer 2"); 0 is
        before the decoder.
    per : "prompt" or "image"
        Whether a prompt with several images or videos has one budget, or one for each of them.
    """

    name: ClassVar[str] = "mob"
    card: ClassVar[Card] = Card(
        title="MoB",
        year=2025,
        objective="both",
        pruning_point="after 1 decoder layer",
        signal="cosines of visual tokens with prompt tokens and with each other",
        paper="NeurIPS 2025",
        ours=True,
        departs=(
            "follows the paper's text; the authors' code (YChenL/MoB) differs in layer, prompt "
            "tokens, fold and count kept; [our choices where the paper is silent](exactness.md)"
        ),
    )

    setting_choices: ClassVar = {"per": ("prompt", "image")}

    split: str | Split | SplitRule = "paper"
    after: int = 1
    per: Literal["prompt", "image"] = "prompt"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = self.rule
        if isinstance(rule, FixedSplit):
            self._check_fixed(rule.split)
        rule.check(self.after)
        if self.per == "image" and self.budget_mode == "flops":
            raise InputError(
                "budget_mode='flops' is a budget for the whole prompt: it needs per='prompt'."
            )

    @cached_property
    def rule(self) -> SplitRule:
        """The rule of `split`; rules with state belong to this method."""
        return rule_of(self.split)

    def _check_fixed(self, split: Split) -> None:
        if split.budget != self.budget:
            raise InputError(
                f"split {split} has a budget of {split.budget} tokens, but budget={self.budget}: "
                "make them equal."
            )
        if resolve_mode(self.budget_mode, self.published_mode) != "exact":
            raise InputError(
                f"a fixed split cannot follow budget_mode={self.budget_mode!r}: use 'exact', or "
                "a rule such as split='paper'."
            )

    def choose(self, view: View) -> Choice:
        """Run Algorithm 1 on every sample, or on every image of every sample."""
        groups = _group_tokens(view, self.per)
        rule = self.rule
        totals, others = [len(group.tokens.visual) for group in groups], [g.others for g in groups]
        budgets = self.count_kept(view, totals, others)
        decisions = [
            rule.decide(budget, group.tokens) for budget, group in zip(budgets, groups, strict=True)
        ]
        splits = [decision.split for decision in decisions]
        covers = mob_batch(
            *_gather_states(view, groups),
            budget=[split.budget for split in splits],
            prompt_budget=[split.prompt_budget for split in splits],
            fold=[split.fold for split in splits],
            visual_mask=_mark_tokens(view, groups),
            prompt_mask=_mark_words(view, groups),
        )
        parts = list(zip(groups, covers, decisions, strict=True))
        return _join_parts(view, parts, rule.name)


@dataclass(frozen=True, slots=True)
class Group:
    """The visual tokens with one budget: those of a sample, or of one of its images.

    `mask` ``(n,)`` marks them, None for all of the sample; `others` is the number of other tokens.
    """

    sample: int
    mask: Tensor | None
    tokens: Tokens
    others: int


def _group_tokens(view: View, per: str) -> list[Group]:
    """Read the sizes of all samples at once, and slice their tokens."""
    is_video = (view.video | ~view.mask).all(-1)
    sizes = view.mask.sum(-1), view.prompt_mask.sum(-1), view.others, is_video
    numbers = torch.stack([size.to(view.mask.device).long() for size in sizes], dim=-1).tolist()
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
    """Return visual and prompt tokens of every group, without a copy if groups are samples."""
    samples = [group.sample for group in groups]
    if samples == list(range(len(view.hidden_states))):
        return view.hidden_states, view.prompt
    return view.hidden_states[samples], view.prompt[samples]


def _mark_tokens(view: View, groups: list[Group]) -> Tensor | None:
    """Return a mask of the visual tokens of each group, None for all."""
    if all(len(group.tokens.visual) == view.mask.shape[1] for group in groups):
        return None
    masks = [view.mask[group.sample] if group.mask is None else group.mask for group in groups]
    return torch.stack(masks)


def _mark_words(view: View, groups: list[Group]) -> Tensor | None:
    """Return a mask of the prompt tokens of each group, None for all."""
    if all(len(group.tokens.prompt) == view.prompt_mask.shape[1] for group in groups):
        return None
    return view.prompt_mask[[group.sample for group in groups]]


def _join_parts(view: View, parts: list[tuple[Group, Cover, Decision]], rule: str) -> Choice:
    """Concatenate the parts of each sample."""
    kept, details = [], []
    for sample in range(len(view.mask)):
        mine = [part for part in parts if part[0].sample == sample]
        prompt_centers = torch.cat([cover.prompt_centers for _, cover, _ in mine])
        visual_centers = torch.cat([cover.visual_centers for _, cover, _ in mine])
        kept.append(torch.cat([prompt_centers, visual_centers]))
        couplings = [decision.group for _, _, decision in mine]
        details.append(
            Details(
                prompt_centers=prompt_centers,
                visual_centers=visual_centers,
                coupling=build_lazy_coupling([group.tokens for group, _, _ in mine]),
                rule=rule,
                split=[decision.split for _, _, decision in mine],
                groups=couplings,
                group=couplings[0] if len(set(couplings)) == 1 else None,
                center_prompt_positions=build_lazy_center_positions(view, sample, prompt_centers),
            )
        )
    return Choice(kept, details=details)


def build_lazy_coupling(tokens: list[Tokens]) -> Any:
    """Return the largest eta of some tokens, as a `LazyValue` unless a rule has computed it."""
    coupling = LazyValue(_compute_largest_coupling, tokens)
    return coupling() if all(group.knows_coupling for group in tokens) else coupling


def _compute_largest_coupling(tokens: list[Tokens]) -> float | None:
    values = [group.coupling for group in tokens if group.coupling is not None]
    return max(values, default=None)


def build_lazy_center_positions(view: View, sample: int, centers: Tensor) -> LazyValue:
    """Return, when read, the position of the prompt token nearest to each prompt center."""
    return LazyValue(
        _get_nearest_prompt_positions,
        view.hidden_states[sample, centers.to(view.hidden_states.device)].detach(),
        view.prompt[sample].detach(),
        view.prompt_mask[sample],
        view.prompt_positions[sample],
    )


def _get_nearest_prompt_positions(
    tokens: Tensor, words: Tensor, spoken: Tensor, positions: Tensor
) -> Tensor:
    words, positions = words[spoken.to(words.device)], positions[spoken.to(positions.device)]
    if len(tokens) == 0:
        return positions[:0]
    with keep_precision(tokens.device):
        alignment = cosine(snap(to_float32(tokens)), snap(to_float32(words)))
        nearest = select_largest(alignment)
    return positions[nearest.to(positions.device)]
