"""How a budget is divided between the prompt and the picture."""

from __future__ import annotations

from dataclasses import dataclass

from tokencover.errors import InputError


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
