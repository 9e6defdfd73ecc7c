"""How the whole model was called: with which labels, and whether `generate` calls it."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from tokencover.methods import Choice
from tokencover.runtime.hooks import Hooks

LABELS = ("labels", "shift_labels")
"""The arguments that say what is scored."""


@dataclass(slots=True)
class Generation:
    """What was chosen for the prompt that `generate` goes on from.

    Without a cache the prompt comes again with every new word. What is kept of it stays the same,
    as it does with a cache.

    Attributes
    ----------
    choices : dict
        For each decoder block before which the method acted.
    """

    choices: dict[int, Choice] = field(default_factory=dict)


class ModelCalls:
    """Remembers, for each thread, the call of a model that is under way."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._local = model, threading.local()

    def watch(self, hooks: Hooks) -> None:
        """Put hooks on the whole model."""
        hooks.before(self._model, self._begin)
        hooks.after(self._model, self._end, always_call=True)
        if hasattr(self._model, "generate"):
            hooks.around(self._model, "generate", self._generate, compiled=True)

    @property
    def labels(self) -> dict[str, Tensor]:
        """The labels of the call under way, by their argument."""
        found: dict[str, Tensor] = getattr(self._local, "labels", {})
        return found

    @property
    def generation(self) -> Generation | None:
        """What `generate` is doing, None if it is not running."""
        found: Generation | None = getattr(self._local, "generation", None)
        return found

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = kwargs
        if args:
            names = inspect.signature(type(module).forward).parameters
            given = {**dict(zip(list(names)[1:], args, strict=False)), **kwargs}
        found = {name: given.get(name) for name in LABELS}
        self._local.labels = {name: each for name, each in found.items() if each is not None}

    def _end(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._local.labels = {}

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outer = self.generation
        self._local.generation = Generation()
        try:
            return original(*args, **kwargs)
        finally:
            self._local.generation = outer
