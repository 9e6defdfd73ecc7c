"""How a budget is divided between prompt and picture: the split, and what a rule for it is.

A rule sees the tokens of one sample (or one image) and answers with a `Decision`. To add one,
subclass `SplitRule` with a frozen dataclass, give it a name and register it (`SPLITS.register`, or
the entry point `tokencover.splits` of your package); its fields must be plain JSON values, or
`settings` and `from_settings` must say what they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from tokencover.covering import coupling
from tokencover.errors import InputError

Coupling = Literal["strong", "weak"]
Modality = Literal["image", "video"]


@dataclass(frozen=True, slots=True)
class Split:
    """K = Kp + Kv, and the covering fold k.

    Attributes
    ----------
    prompt_budget : int
        Kp, tokens chosen for what was asked.
    visual_budget : int
        Kv, tokens chosen for the rest of the picture.
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

    @property
    def knows_coupling(self) -> bool:
        """Whether `coupling` costs nothing: it has been read before, or there is no prompt."""
        return len(self.prompt) == 0 or "coupling" in vars(self)


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
