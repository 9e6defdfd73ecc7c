"""Rules that divide a budget between prompt and picture: one small class each.

A rule sees the tokens of one sample (or one image) and answers with a `Decision`. To add one,
subclass `SplitRule`, give it a name and add it to `RULES`; its fields must be plain JSON values, or
`settings` and `from_settings` must say what they are.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from tokencover.budget.amount import nearest
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.budget.published_splits import Coupling, Modality, paper_split
from tokencover.budget.radius_balance import balance_prompt_budget
from tokencover.budget.split import Split
from tokencover.covering import coupling
from tokencover.errors import InputError


@dataclass(frozen=True, eq=False)
class Tokens:
    """What a rule sees.

    Attributes
    ----------
    visual : Tensor
        ``(n, d)``, the visual tokens that share the budget.
    prompt : Tensor
        ``(l, d)``, the prompt words; there may be none.
    modality : "image" or "video"
        What the visual tokens are.
    """

    visual: Tensor
    prompt: Tensor
    modality: Modality = "image"

    @cached_property
    def coupling(self) -> float | None:
        """eta, the Hausdorff distance of visual tokens and prompt; None without a prompt."""
        return float(coupling(self.visual, self.prompt)) if len(self.prompt) else None


@dataclass(frozen=True, slots=True)
class Decision:
    """A split, and what it was based on.

    Attributes
    ----------
    split : Split
        Kp, Kv and k.
    group : "strong", "weak" or None
        The coupling that was assumed.
    """

    split: Split
    group: Coupling | None = None


class SplitRule(ABC):
    """Divides a budget."""

    name: ClassVar[str]

    @abstractmethod
    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Divide `budget` tokens, at least 1 and at most those there are."""

    def check(self, after: int) -> None:
        """Refuse to work after this number of decoder blocks, if the rule cannot."""
        return

    def settings(self) -> dict[str, Any]:
        """What the rule is made of, as plain JSON values."""
        chosen = [each.name for each in fields(self) if each.init]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in chosen}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The rule with these settings."""
        return cls(**settings)


def _from_tables(budget: int, tokens: Tokens, group: Coupling | None) -> Decision:
    split = paper_split(budget, len(tokens.visual), coupling=group, modality=tokens.modality)
    return Decision(split, group)


@dataclass(frozen=True)
class PaperSplit(SplitRule):
    """The paper's tables.

    Parameters
    ----------
    coupling : "strong", "weak" or None
        What is known beforehand about all samples; by default nothing.
    """

    name: ClassVar[str] = "paper"
    coupling: Coupling | None = None

    def __post_init__(self) -> None:
        if self.coupling not in ("strong", "weak", None):
            raise InputError(f"coupling must be 'strong', 'weak' or None, got {self.coupling!r}.")

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Look it up."""
        return _from_tables(budget, tokens, self.coupling)


@dataclass(frozen=True)
class FixedSplit(SplitRule):
    """The same split for every sample.

    Parameters
    ----------
    split : Split
        Used as it is.
    """

    name: ClassVar[str] = "fixed"
    split: Split

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Give the split; `budget` is not looked at."""
        return Decision(self.split)

    def settings(self) -> dict[str, Any]:
        """The split's own fields."""
        return {each.name: getattr(self.split, each.name) for each in fields(self.split)}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The rule with the split of these fields."""
        return cls(Split(**settings))


@dataclass(frozen=True)
class CouplingSplit(SplitRule):
    """The paper's table for the sample's own coupling: eta up to tau is strong, above it weak.

    Without words in the prompt, and with a profile that says that there are no two groups, the
    table without a prior is used.

    Parameters
    ----------
    profile : Profile, path or float
        What `tokencover calibrate` wrote, or tau itself.
    """

    name: ClassVar[str] = "coupling"
    profile: Profile | str | os.PathLike[str] | float
    tau: float | None = field(init=False, repr=False, compare=False)
    """The threshold; None if the profile has no two groups."""
    measured_after: int | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given, after = self.profile, None
        if isinstance(given, bool) or not isinstance(
            given, Profile | str | os.PathLike | int | float
        ):
            raise InputError(
                f"profile must be a Profile, the path of one, or tau as a number; got {given!r}."
            )
        if isinstance(given, int | float):
            if not math.isfinite(given):
                raise InputError(f"tau must be a finite number, got {given}.")
            tau: float | None = float(given)
        else:
            known = given if isinstance(given, Profile) else Profile.load(given)
            tau, after = known.tau if known.separated else None, known.after
        if isinstance(given, os.PathLike):
            object.__setattr__(self, "profile", os.fspath(given))
        object.__setattr__(self, "tau", tau)
        object.__setattr__(self, "measured_after", after)

    def __str__(self) -> str:
        given = self.profile
        source = f"profile of {given.model}" if isinstance(given, Profile) else repr(given)
        return f"CouplingSplit({source})"  # a profile in full would not fit in a table

    def check(self, after: int) -> None:
        """Coupling changes from block to block, and the threshold with it."""
        if self.measured_after not in (None, after):
            raise InputError(
                f"the profile was measured after {self.measured_after} blocks, pruning happens "
                f"after {after}: run `tokencover calibrate --after {after}`."
            )

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Compare with tau."""
        return _from_tables(budget, tokens, _group(tokens.coupling, self.tau))

    def settings(self) -> dict[str, Any]:
        """The path or the number; a `Profile` with all it holds."""
        given = self.profile
        return {"profile": given.document() if isinstance(given, Profile) else given}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The rule with these settings."""
        given = settings.get("profile")
        if isinstance(given, Mapping):
            return cls(Profile.from_document(given))
        return cls(**settings)


@dataclass(frozen=True)
class OnlineSplit(SplitRule):
    """As `CouplingSplit`, with a threshold that is learned from the samples themselves.

    While none is in force (see `tokencover.budget.online`) the table without a prior is used.
    Rules with equal settings are equal, whatever they have learned.

    Parameters
    ----------
    warm_up : int
        Samples before a threshold can be in force.
    memory : int
        How many samples a sample is remembered for.
    """

    name: ClassVar[str] = "online"
    warm_up: int = 100
    memory: int = 1000
    threshold: OnlineThreshold = field(init=False, repr=False, compare=False)
    """What was learned; it can be saved and restored."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", OnlineThreshold(self.warm_up, self.memory))

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Compare with the threshold in force, and learn from the sample."""
        eta = tokens.coupling
        tau = None if eta is None else self.threshold.observe(eta)
        return _from_tables(budget, tokens, _group(eta, tau))


@dataclass(frozen=True)
class BalancedSplit(SplitRule):
    """The split at which prompt and picture are covered equally well, sample by sample.

    Parameters
    ----------
    fold : "eighth" or "per_word"
        k is the paper's Kp / 8, or Kp divided by the number of prompt words, rounded down; at
        least 1.
    """

    name: ClassVar[str] = "balanced"
    fold: Literal["eighth", "per_word"] = "eighth"

    def __post_init__(self) -> None:
        if self.fold not in ("eighth", "per_word"):
            raise InputError(f"fold must be 'eighth' or 'per_word', got {self.fold!r}.")

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Balance the two radii; without words, or with nothing to drop, there is no balance."""
        if not len(tokens.prompt) or budget >= len(tokens.visual):
            return _from_tables(budget, tokens, None)
        prompt_budget = balance_prompt_budget(tokens.visual, tokens.prompt, budget)
        by_words = prompt_budget // len(tokens.prompt)
        fold = by_words if self.fold == "per_word" else nearest(Fraction(prompt_budget, 8))
        return Decision(Split(prompt_budget, budget - prompt_budget, max(1, fold)))


def _group(eta: float | None, tau: float | None) -> Coupling | None:
    if eta is None or tau is None:
        return None
    return "strong" if eta <= tau else "weak"


AUTO: SplitRule = PaperSplit()
"""What "auto" means: the rule that is recommended when nothing is known about model and data."""

NAMED: dict[str, SplitRule] = {
    "paper": PaperSplit(),
    "strong": PaperSplit("strong"),
    "weak": PaperSplit("weak"),
    "balanced": BalancedSplit(),
    "auto": AUTO,
}
"""Rules that a word stands for."""

RULES: dict[str, type[SplitRule]] = {
    rule.name: rule for rule in (PaperSplit, FixedSplit, CouplingSplit, OnlineSplit, BalancedSplit)
}
"""All rules by name, for JSON."""


def rule_of(split: str | Split | SplitRule) -> SplitRule:
    """The rule that a setting means: a word, a fixed split, or a rule."""
    if isinstance(split, SplitRule):
        return split
    if isinstance(split, Split):
        return FixedSplit(split)
    if not isinstance(split, str) or split not in NAMED:
        words = ", ".join(map(repr, NAMED))
        raise InputError(
            f"split must be {words}, a tc.Split, or a rule such as tc.CouplingSplit(profile); got "
            f"{split!r}."
        )
    return NAMED[split]


def rule_document(rule: SplitRule) -> dict[str, Any]:
    """A rule as plain JSON values; what it has learned is not part of it."""
    return {"rule": rule.name, **rule.settings()}


def rule_from_document(document: Mapping[str, Any]) -> SplitRule:
    """The rule that `rule_document` wrote down."""
    settings = dict(document)
    name = settings.pop("rule")
    if not isinstance(name, str) or name not in RULES:
        raise InputError(f"there is no split rule {name!r}; there are {', '.join(RULES)}.")
    try:
        return RULES[name].from_settings(settings)
    except TypeError as error:
        raise InputError(
            f"the split rule {name!r} cannot be made from {settings}: {error}."
        ) from error
