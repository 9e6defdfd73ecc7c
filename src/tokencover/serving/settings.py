"""The settings of a server, and what a request may change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tokencover.budget import Budget, tokens_to_keep
from tokencover.errors import InputError
from tokencover.methods import BudgetedMethod, parse_method, to_json
from tokencover.registry import suggest
from tokencover.serving.selection import SelectionPlan
from tokencover.serving.supported import build_served_method, validate_request

SETTINGS_KEY: Final = "tokencover"
"""The entry of ``--hf-overrides`` that has a server's settings, and the entry of a request's
``mm_processor_kwargs`` that has its own."""

LIMIT_KEY: Final = "tokencover_positions"
"""The entry of a model's configuration with its number of positions."""

REQUEST_KEYS: Final = ("budget", "method")

MAX_METHOD_LENGTH: Final = 1000
"""Characters of a method in a request; a longer one is not parsed."""

VISION_CACHE_MB: Final = 256
"""Default size of the cache for vision-encoder outputs."""

MAX_REASON_LENGTH: Final = 1000


@dataclass(frozen=True)
class ServingSettings:
    """What a server does with every image.

    `method` is used unless a request names another one, `ceiling` is the largest budget that a
    request may name. `choose_by` is "question" if the method reads the prompt, or "image": then
    every question about an image uses the engine's caches. `vision_cache_mb` is the size of the
    cache for vision-encoder outputs; 0 disables it. With `other_request_settings` requests may set
    other processor options in ``mm_processor_kwargs``.
    """

    method: BudgetedMethod
    ceiling: Budget
    choose_by: str = "question"
    vision_cache_mb: int = VISION_CACHE_MB
    other_request_settings: bool = False

    def __post_init__(self) -> None:
        tokens_to_keep(self.ceiling, total=1)
        budget = self.method.budget
        if type(self.ceiling) is type(budget) and self.ceiling < budget:
            raise InputError(
                f"ceiling={self.ceiling} is below budget={budget}. Raise the ceiling or lower the "
                "budget."
            )
        if self.choose_by not in ("question", "image"):
            raise InputError(f"choose_by must be 'question' or 'image', got {self.choose_by!r}.")
        size = self.vision_cache_mb
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InputError(f"vision_cache_mb must be an integer of at least 0, got {size!r}.")

    @classmethod
    def read(cls, document: Any) -> ServingSettings:
        """Parse the entry "tokencover" of ``--hf-overrides``.

        Its keys are `budget`, `method`, `split`, `profile`, `positions`, and the attributes of this
        class.
        """
        if not isinstance(document, Mapping):
            raise InputError(
                f'--hf-overrides must contain {{"{SETTINGS_KEY}": {{"budget": 64}}}}, as written '
                f"by `tokencover serve`; got {document!r}."
            )
        rest = dict(document)
        options = {key: rest.pop(key) for key in ("split", "profile", "positions") if key in rest}
        budget = rest.pop("budget", None)
        if budget is None:
            raise InputError('The server needs a "budget": a count (64) or a fraction (0.111).')
        method = build_served_method(rest.pop("method", "mob"), budget=budget, **options)
        known = [name for name in cls.__dataclass_fields__ if name != "method"]
        if unknown := sorted(set(rest) - set(known)):
            raise InputError(
                f"{SETTINGS_KEY} has no setting {', '.join(unknown)}{suggest(unknown[0], known)}."
            )
        return cls(method, rest.pop("ceiling", method.budget), **rest)

    def plan(self, requested: Any, prompt_ids: Sequence[int]) -> SelectionPlan:
        """Build the plan for the images of a request.

        `requested` is the entry "tokencover" of its ``mm_processor_kwargs``, a budget and a method,
        or None. Raises `InputError` for settings that a request may not make.
        """
        method = self.method if requested is None else self._parse_request(requested)
        used = prompt_ids if self.choose_by == "question" and method.reads_prompt else ()
        # The ceiling is for budgets of requests. By repr, 1 (a token) differs from 1.0 (all).
        is_own = repr(method.budget) == repr(self.method.budget)
        ceiling = 1.0 if is_own else self.ceiling
        return SelectionPlan(to_json(method), tuple(used), ceiling)

    def _parse_request(self, requested: Any) -> BudgetedMethod:
        if not isinstance(requested, Mapping):
            raise InputError(
                f'"{SETTINGS_KEY}" must be an object, for example {{"budget": 32}}; got '
                f"{requested!r}."
            )
        if unknown := [key for key in requested if key not in REQUEST_KEYS]:
            raise InputError(
                f"A request may set {' and '.join(REQUEST_KEYS)}, not "
                f"{', '.join(map(repr, unknown))}."
            )
        named = requested.get("method")
        if named is None:
            spec = json.loads(to_json(self.method))
        else:
            spec = _parse_spec(named)
            validate_request(spec)
            spec.setdefault("budget", self.method.budget)
        budget = requested.get("budget", spec["budget"])
        tokens_to_keep(budget, total=1)
        return build_served_method(
            {**spec, "budget": budget}, budget=budget, positions=self.method.positions
        )


def _parse_spec(named: Any) -> dict[str, Any]:
    if isinstance(named, Mapping):
        return dict(named)
    if isinstance(named, str) and len(named) <= MAX_METHOD_LENGTH:
        return dict(parse_method(named))
    text = f"{len(named)} characters" if isinstance(named, str) else repr(named)
    raise InputError(f"method must be a name such as 'mob:split=weak', got {text}.")


def format_reason(error: Exception) -> str:
    """Shorten an error for the client, which may have sent megabytes or invalid text."""
    text = f"tokencover: {error}".encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= MAX_REASON_LENGTH else f"{text[:MAX_REASON_LENGTH]} ..."
