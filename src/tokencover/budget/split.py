"""How a budget is split between prompt and image: splits, rules, and the paper's tables.

A rule gets the tokens of one sample (or one image) and returns a `Decision`. To add one, subclass
`SplitRule` with a frozen dataclass, name it and register it (`SPLITS.register`, or the entry point
`tokencover.splits` of your package); its fields must be plain JSON values, or `settings` and
`from_settings` must convert them.

The tables give Kp and k for a budget K (`paper_split`). For images the paper prints three reduction
rates, 88.9, 77.8 and 66.7 % (64, 128 and 192 tokens of 576). Kp is a fraction of K, k of Kp:

===================  ======  ======  ======  ========
reduction rate       8/9     7/9     2/3     k
===================  ======  ======  ======  ========
no eta prior         1/2     3/8     1/3     Kp / 8
strong coupling      3/8     1/4     1/4     3 Kp / 40
weak coupling        1/2     7/16    5/12    Kp / 8
===================  ======  ======  ======  ========

(The first row is the paper's Kp = 32, 48, 64 with k = 4, 6, 8, which it lists in reverse; for
strong coupling at 2/3 its appendix prints 11/24, its table captions 1/4.) For video it prints one
fraction: 3/8 under strong coupling (MSVD, MSRVTT, ActivityNet), 1/2 under weak coupling (TGIF).
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from tokencover.budget.amount import Budget, round_half_up, tokens_to_keep
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.covering import (
    check_count,
    check_pair,
    coupling,
    farthest_order,
    prompt_order,
    select_smallest,
)
from tokencover.errors import InputError

Coupling = Literal["strong", "weak"]
Modality = Literal["image", "video"]


@dataclass(frozen=True, slots=True)
class Split:
    """K = Kp + Kv, and the covering fold k.

    Attributes
    ----------
    prompt_budget : int
        Kp, tokens chosen for the prompt.
    visual_budget : int
        Kv, tokens chosen to cover the rest of the image.
    fold : int
        k, how many visual tokens each prompt token proposes.
    """

    prompt_budget: int
    visual_budget: int
    fold: int

    def __post_init__(self) -> None:
        for name, least in (("prompt_budget", 0), ("visual_budget", 0), ("fold", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be an integer of at least {least}, got {value!r}.")
        if self.budget == 0:
            raise InputError("a split of 0 tokens keeps nothing: give at least one token.")

    @property
    def budget(self) -> int:
        """K, all tokens kept."""
        return self.prompt_budget + self.visual_budget


@dataclass(frozen=True, eq=False)
class Tokens:
    """What a rule decides from.

    Attributes
    ----------
    visual : Tensor
        ``(n, d)``, the visual tokens that share the budget.
    prompt : Tensor
        ``(l, d)``, the prompt tokens; may be empty.
    modality : "image" or "video"
        What the visual tokens show.
    """

    visual: Tensor
    prompt: Tensor
    modality: Modality = "image"

    @cached_property
    def coupling(self) -> float | None:
        """eta, the Hausdorff distance of visual tokens and prompt; None without a prompt."""
        return float(coupling(self.visual, self.prompt)) if len(self.prompt) else None

    @property
    def knows_coupling(self) -> bool:
        """Whether `coupling` costs nothing: it was read before, or there is no prompt."""
        return len(self.prompt) == 0 or "coupling" in vars(self)


@dataclass(frozen=True, slots=True)
class Decision:
    """A split, and the coupling it assumes: "strong", "weak", or None if there is no prior."""

    split: Split
    group: Coupling | None = None


class SplitRule(ABC):
    """Splits a budget between prompt and image."""

    name: ClassVar[str]

    @abstractmethod
    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Split `budget` tokens, at least 1 and at most as many as there are."""

    def check(self, after: int) -> None:
        """Raise if the rule cannot work after this number of decoder layers."""
        return

    def settings(self) -> dict[str, Any]:
        """The fields, as plain JSON values."""
        chosen = [spec.name for spec in fields(self) if spec.init]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in chosen}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The rule with these settings."""
        return cls(**settings)


@dataclass(frozen=True, slots=True)
class TableRow:
    """Kp / K for each printed reduction rate, and k / Kp."""

    prompt_fractions: dict[Fraction, Fraction]
    fold_fraction: Fraction

    def interpolate_prompt_fraction(self, reduction: Fraction) -> Fraction:
        """Kp / K: linear between the printed reduction rates, constant outside them."""
        rates = sorted(self.prompt_fractions)
        if reduction <= rates[0]:
            return self.prompt_fractions[rates[0]]
        for low, high in pairwise(rates):
            if reduction <= high:
                weight = (reduction - low) / (high - low)
                start, end = self.prompt_fractions[low], self.prompt_fractions[high]
                return start + weight * (end - start)
        return self.prompt_fractions[rates[-1]]


def _build_row(prompt_fractions: tuple[str, str, str], fold_fraction: str) -> TableRow:
    rates = Fraction(8, 9), Fraction(7, 9), Fraction(2, 3)
    by_rate = dict(zip(rates, map(Fraction, prompt_fractions), strict=True))
    return TableRow(by_rate, Fraction(fold_fraction))


NO_PRIOR = _build_row(("1/2", "3/8", "1/3"), "1/8")
TABLES: dict[Modality, dict[Coupling | None, TableRow]] = {
    "image": {
        None: NO_PRIOR,
        "strong": _build_row(("3/8", "1/4", "1/4"), "3/40"),
        "weak": _build_row(("1/2", "7/16", "5/12"), "1/8"),
    },
    "video": {
        None: NO_PRIOR,
        "strong": _build_row(("3/8", "3/8", "3/8"), "3/40"),
        "weak": _build_row(("1/2", "1/2", "1/2"), "1/8"),
    },
}


def paper_split(
    budget: Budget,
    total: int,
    *,
    coupling: Coupling | None = None,
    modality: Modality = "image",
) -> Split:
    """The paper's split of a budget.

    Parameters
    ----------
    budget : int or float
        K, a count, or a fraction of `total`.
    total : int
        N, number of visual tokens.
    coupling : {"strong", "weak"}, optional
        The eta prior. Without it the row that depends on K alone is used.
    modality : {"image", "video"}
        The paper gives no video row without a prior; the one for images is used.

    Returns
    -------
    Split
        Kp and k rounded to the nearest integer, k at least 1.
    """
    if modality not in TABLES:
        raise InputError(f"modality must be one of {list(TABLES)}, got {modality!r}.")
    if coupling not in TABLES[modality]:
        raise InputError(f"coupling must be 'strong', 'weak' or None, got {coupling!r}.")
    keep = tokens_to_keep(budget, total)
    row = TABLES[modality][coupling]
    fraction = row.interpolate_prompt_fraction(1 - Fraction(keep, total))
    prompt_budget = round_half_up(keep * fraction)
    fold = max(1, round_half_up(prompt_budget * row.fold_fraction))
    return Split(prompt_budget, keep - prompt_budget, fold)


def balance_prompt_budget(visual: Tensor, prompt: Tensor, budget: int) -> int:
    """Kp that minimizes max(eps_p(Kp), eps_v(K - Kp)), the smallest such.

    eps_p(Kp) is the distance of the worst prompt token to the nearest of the Kp visual tokens most
    aligned with the prompt, eps_v(Kv) that of the worst visual token to the nearest of the first Kv
    farthest points without a start; infinite for 0. Both orders of centers are nested
    (`covering/radii.py`), so one run of each gives all splits.

    Parameters
    ----------
    visual, prompt : Tensor
        V ``(n, d)`` and P ``(l, d)``. Without a prompt token Kp is 0.
    budget : int
        K, at least 1; cut to n. A budget of 1 cannot cover both: Kp is 0.
    """
    check_pair(visual, prompt, ranks=(2,))
    budget = min(check_count("budget", budget, 1), len(visual))
    prompt_radius = prompt_order(visual, prompt, most=budget).radius
    visual_radius = farthest_order(visual, most=budget).radius
    return int(select_smallest(torch.maximum(prompt_radius, visual_radius.flip(0))))


def _look_up(budget: int, tokens: Tokens, group: Coupling | None) -> Decision:
    split = paper_split(budget, len(tokens.visual), coupling=group, modality=tokens.modality)
    return Decision(split, group)


def _get_group(eta: float | None, tau: float | None) -> Coupling | None:
    if eta is None or tau is None:
        return None
    return "strong" if eta <= tau else "weak"


@dataclass(frozen=True)
class PaperSplit(SplitRule):
    """The paper's tables.

    Parameters
    ----------
    coupling : "strong", "weak" or None
        The coupling of all samples, if it is known beforehand.
    """

    name: ClassVar[str] = "paper"
    coupling: Coupling | None = None

    def __post_init__(self) -> None:
        if self.coupling not in ("strong", "weak", None):
            raise InputError(f"coupling must be 'strong', 'weak' or None, got {self.coupling!r}.")

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Look it up."""
        return _look_up(budget, tokens, self.coupling)


@dataclass(frozen=True)
class FixedSplit(SplitRule):
    """The same `split` for every sample, whatever the budget."""

    name: ClassVar[str] = "fixed"
    split: Split

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Return the split."""
        return Decision(self.split)

    def settings(self) -> dict[str, Any]:
        """The split's own fields."""
        return {spec.name: getattr(self.split, spec.name) for spec in fields(self.split)}

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Self:
        """The rule with the split of these fields."""
        return cls(Split(**settings))


@dataclass(frozen=True)
class CouplingSplit(SplitRule):
    """The paper's table for the sample's own coupling: eta up to tau is strong, above it weak.

    Without prompt tokens, and with a profile without two separate groups, the table without a prior
    is used.

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
            profile = given if isinstance(given, Profile) else Profile.load(given)
            tau, after = profile.tau if profile.separated else None, profile.after
        if isinstance(given, os.PathLike):
            object.__setattr__(self, "profile", os.fspath(given))
        object.__setattr__(self, "tau", tau)
        object.__setattr__(self, "measured_after", after)

    def __str__(self) -> str:
        given = self.profile
        source = f"profile of {given.model}" if isinstance(given, Profile) else repr(given)
        return f"CouplingSplit({source})"  # a profile in full would not fit in a table

    def check(self, after: int) -> None:
        """Coupling changes from layer to layer, and the threshold with it."""
        if self.measured_after not in (None, after):
            raise InputError(
                f"the profile was measured after {self.measured_after} layers, but pruning happens "
                f"after {after}: run `tokencover calibrate --after {after}`."
            )

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Compare with tau."""
        return _look_up(budget, tokens, _get_group(tokens.coupling, self.tau))

    def settings(self) -> dict[str, Any]:
        """The path or the number; a `Profile` with its whole content."""
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
    """As `CouplingSplit`, with a threshold learned from the samples themselves.

    While no threshold is in force (see `tokencover.budget.online`) the table without a prior is
    used. Rules with equal settings are equal, whatever they have learned.

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
        return _look_up(budget, tokens, _get_group(eta, tau))


@dataclass(frozen=True)
class BalancedSplit(SplitRule):
    """The split at which prompt and image are covered equally well, sample by sample.

    k is the paper's Kp / 8, at least 1.
    """

    name: ClassVar[str] = "balanced"

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        """Balance the radii; the table without a prior if there is no prompt or nothing to drop."""
        if not len(tokens.prompt) or budget >= len(tokens.visual):
            return _look_up(budget, tokens, None)
        prompt_budget = balance_prompt_budget(tokens.visual, tokens.prompt, budget)
        fold = max(1, round_half_up(Fraction(prompt_budget, 8)))
        return Decision(Split(prompt_budget, budget - prompt_budget, fold))


AUTO: SplitRule = PaperSplit()
"""What "auto" means: the recommended rule if nothing is known about model and data."""

WORDS: dict[str, SplitRule] = {
    "paper": PaperSplit(),
    "strong": PaperSplit("strong"),
    "weak": PaperSplit("weak"),
    "balanced": BalancedSplit(),
    "auto": AUTO,
}
"""Words for a rule with its settings; `SPLITS` has the names of rules."""
