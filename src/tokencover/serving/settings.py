"""What a server was started with, and what a request makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokencover.budget import Budget, tokens_to_keep
from tokencover.errors import InputError
from tokencover.methods import BudgetedMethod, parse_method, to_json
from tokencover.registry import suggest
from tokencover.serving.choice_plan import ChoicePlan
from tokencover.serving.served_methods import check_requested, make_served_method

SETTINGS_KEY: Final = "tokencover"
"""The entry of ``--hf-overrides`` that has a server's settings, and the entry of a request's
``mm_processor_kwargs`` that has its own."""

LIMIT_KEY: Final = "tokencover_positions"
"""Where a model's configuration notes how many positions it was made for."""

REQUEST_KEYS: Final = ("budget", "method")

LONGEST_METHOD: Final = 1000
"""Letters of a method in a request; what is longer is not even read."""

TOWER_MEGABYTES: Final = 256
"""What tower outputs may take by default, remembered for the next question about a picture."""

LONGEST_REASON: Final = 1000


@dataclass(frozen=True)
class ServingSettings:
    """What a server does with every picture.

    Attributes
    ----------
    method : BudgetedMethod
        What it runs where a request says nothing.
    ceiling : int or float
        The largest budget that a request may ask for.
    choose_by : "question" or "picture"
        Whether a method sees the user's words. If not, the choice is the picture's own, and every
        question about it finds it in the engine's caches.
    tower_megabytes : int
        How much the remembered outputs of the vision tower may take; 0 for none.
    other_request_settings : bool
        Whether requests may set other things of the processor too, by ``mm_processor_kwargs``.
    """

    method: BudgetedMethod
    ceiling: Budget
    choose_by: str = "question"
    tower_megabytes: int = TOWER_MEGABYTES
    other_request_settings: bool = False

    def __post_init__(self) -> None:
        tokens_to_keep(self.ceiling, total=1)
        budget = self.method.budget
        if type(self.ceiling) is type(budget) and self.ceiling < budget:
            raise InputError(
                f"the ceiling {self.ceiling} lies below the budget {budget}, so that the server "
                "would refuse its own: raise the one or lower the other."
            )
        if self.choose_by not in ("question", "picture"):
            raise InputError(f"choose_by must be 'question' or 'picture', got {self.choose_by!r}.")
        size = self.tower_megabytes
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InputError(f"tower_megabytes must be a number of at least 0, got {size!r}.")

    @classmethod
    def read(cls, document: Any) -> ServingSettings:
        """Read the entry "tokencover" of ``--hf-overrides``.

        Its keys are `budget`, `method`, `split`, `profile`, `positions`, and the attributes of this
        class.
        """
        if not isinstance(document, Mapping):
            raise InputError(
                f'the server needs {{"{SETTINGS_KEY}": {{"budget": 64}}}} in --hf-overrides, got '
                f"{document!r} there; `tokencover serve` writes it."
            )
        given = dict(document)
        making = {key: given.pop(key) for key in ("split", "profile", "positions") if key in given}
        budget = given.pop("budget", None)
        if budget is None:
            raise InputError('the server needs a "budget": a count (64) or a share (0.111).')
        method = make_served_method(given.pop("method", "mob"), budget=budget, **making)
        known = [name for name in cls.__dataclass_fields__ if name != "method"]
        if unknown := sorted(set(given) - set(known)):
            raise InputError(
                f"{SETTINGS_KEY} has no setting {', '.join(unknown)}{suggest(unknown[0], known)}."
            )
        return cls(method, given.pop("ceiling", method.budget), **given)

    @property
    def reads_words(self) -> bool:
        """Whether choices depend on what was asked, unless a request changes the method."""
        return self.choose_by == "question" and self.method.reads_prompt

    def plan(self, asked: Any, words: Sequence[int]) -> ChoicePlan:
        """What is to be done with the pictures of a request.

        Parameters
        ----------
        asked : Mapping or None
            The entry "tokencover" of the request's ``mm_processor_kwargs``: a budget, a method.
        words : sequence of int
            Token ids of the user's words.

        Raises
        ------
        InputError
            If the request asks for something that it may not have.
        """
        method = self.method if asked is None else self._read_request(asked)
        shown = words if self.choose_by == "question" and method.reads_prompt else ()
        # The ceiling is for budgets that requests name. JSON tells 1 from 1.0, a token from all.
        own = repr(method.budget) == repr(self.method.budget)
        ceiling = 1.0 if own else self.ceiling
        return ChoicePlan(to_json(method), tuple(shown), ceiling)

    def _read_request(self, asked: Any) -> BudgetedMethod:
        if not isinstance(asked, Mapping):
            raise InputError(
                f'"{SETTINGS_KEY}" is an object, for example {{"budget": 32}}; got {asked!r}.'
            )
        if unknown := [key for key in asked if key not in REQUEST_KEYS]:
            raise InputError(
                f"a request may set {' and '.join(REQUEST_KEYS)}, not "
                f"{', '.join(map(repr, unknown))}."
            )
        named = asked.get("method")
        if named is None:
            spec = _to_spec(self.method)
        else:
            spec = _read_spec(named)
            check_requested(spec)
            spec.setdefault("budget", self.method.budget)
        budget = asked.get("budget", spec["budget"])
        tokens_to_keep(budget, total=1)
        return make_served_method(
            {**spec, "budget": budget}, budget=budget, positions=self.method.positions
        )


def _read_spec(named: Any) -> dict[str, Any]:
    if isinstance(named, str) and len(named) > LONGEST_METHOD:
        raise InputError(f"method is a name such as 'mob:split=weak', got {len(named)} letters.")
    spec = parse_method(named) if isinstance(named, str) else named
    if not isinstance(spec, Mapping):
        raise InputError(f"method is a name such as 'mob:split=weak', got {named!r}.")
    return dict(spec)


def _to_spec(method: BudgetedMethod) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(to_json(method))
    return spec


def write_reason(error: Exception) -> str:
    """What a client is told: it may have sent megabytes, or letters that cannot be written."""
    told = f"tokencover: {error}".encode("utf-8", "backslashreplace").decode()
    return told if len(told) <= LONGEST_REASON else f"{told[:LONGEST_REASON]} ..."
