"""The rules that come with tokencover, one small class each (see `SplitRule`); the paper's tables.

The tables give Kp and k for a budget K (`paper_split`). For pictures the paper prints three
reduction rates, 88.9, 77.8 and 66.7 % (64, 128 and 192 tokens of 576). Kp is a share of K, k a
share of Kp:

===================  ======  ======  ======  ========
reduction rate       8/9     7/9     2/3     k
===================  ======  ======  ======  ========
no eta prior         1/2     3/8     1/3     Kp / 8
strong coupling      3/8     1/4     1/4     3 Kp / 40
weak coupling        1/2     7/16    5/12    Kp / 8
===================  ======  ======  ======  ========

(The first row is the paper's Kp = 32, 48, 64 with k = 4, 6, 8, which it lists in reverse; for
strong coupling at 2/3 its appendix prints 11/24, its table captions 1/4.) For video it prints one
share: 3/8 under strong coupling (MSVD, MSRVTT, ActivityNet), 1/2 under weak coupling (TGIF).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

from tokencover.budget.amount import Budget, round_half_up, tokens_to_keep
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.profile import Profile
from tokencover.budget.radius_balance import balance_prompt_budget
from tokencover.budget.split import Coupling, Decision, Modality, Split, SplitRule, Tokens
from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One row of the tables.

    Attributes
    ----------
    prompt_shares : dict
        Kp / K for each printed reduction rate.
    fold_share : Fraction
        k / Kp.
    """

    prompt_shares: dict[Fraction, Fraction]
    fold_share: Fraction

    def find_prompt_share(self, reduction: Fraction) -> Fraction:
        """Kp / K: linear between the printed reduction rates, constant outside them."""
        rates = sorted(self.prompt_shares)
        if reduction <= rates[0]:
            return self.prompt_shares[rates[0]]
        for low, high in pairwise(rates):
            if reduction <= high:
                weight = (reduction - low) / (high - low)
                shares = self.prompt_shares[low], self.prompt_shares[high]
                return shares[0] + weight * (shares[1] - shares[0])
        return self.prompt_shares[rates[-1]]


def _make_row(shares: tuple[str, str, str], fold_share: str) -> ShareRow:
    rates = Fraction(8, 9), Fraction(7, 9), Fraction(2, 3)
    return ShareRow(dict(zip(rates, map(Fraction, shares), strict=True)), Fraction(fold_share))


NO_PRIOR = _make_row(("1/2", "3/8", "1/3"), "1/8")
TABLES: dict[Modality, dict[Coupling | None, ShareRow]] = {
    "image": {
        None: NO_PRIOR,
        "strong": _make_row(("3/8", "1/4", "1/4"), "3/40"),
        "weak": _make_row(("1/2", "7/16", "5/12"), "1/8"),
    },
    "video": {
        None: NO_PRIOR,
        "strong": _make_row(("3/8", "3/8", "3/8"), "3/40"),
        "weak": _make_row(("1/2", "1/2", "1/2"), "1/8"),
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
        K, a count, or a share of `total`.
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
    prompt_budget = round_half_up(keep * row.find_prompt_share(1 - Fraction(keep, total)))
    fold = max(1, round_half_up(prompt_budget * row.fold_share))
    return Split(prompt_budget, keep - prompt_budget, fold)


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
        return _look_up(budget, tokens, self.coupling)


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
        return _look_up(budget, tokens, _find_group(tokens.coupling, self.tau))

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
        return _look_up(budget, tokens, _find_group(eta, tau))


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
            return _look_up(budget, tokens, None)
        prompt_budget = balance_prompt_budget(tokens.visual, tokens.prompt, budget)
        by_words = prompt_budget // len(tokens.prompt)
        fold = by_words if self.fold == "per_word" else round_half_up(Fraction(prompt_budget, 8))
        return Decision(Split(prompt_budget, budget - prompt_budget, max(1, fold)))


def _look_up(budget: int, tokens: Tokens, group: Coupling | None) -> Decision:
    split = paper_split(budget, len(tokens.visual), coupling=group, modality=tokens.modality)
    return Decision(split, group)


def _find_group(eta: float | None, tau: float | None) -> Coupling | None:
    if eta is None or tau is None:
        return None
    return "strong" if eta <= tau else "weak"
