"""Which call of the model is under way: `generate` and its steps, labels, loops of the caller."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Choice
from tokencover.pruning.hooks import Hooks
from tokencover.pruning.vision import PIXELS

LABELS = ("labels", "shift_labels")
"""The arguments that say what is scored."""
CONTINUOUS = (
    "continuous batching (generate_batch, cache_implementation='paged') takes no images, and "
    "keeps keys and values where pruning cannot shorten them: use generate, or leave the `with` of "
    "tc.prune first."
)


@dataclass(slots=True)
class Generation:
    """The selection for the prompt that `generate`, or a loop inside `hold`, continues.

    Without a cache every step processes the prompt again. Its selection stays the same, as it does
    with a cache. Other calls of the model meanwhile, for example by a logits processor, are not
    part of the generation.

    Attributes
    ----------
    choices : dict
        For each decoder block before which the method acted.
    held : bool
        Whether it is a loop of the caller's, who may mistake one prompt for another.
    length : int or None
        Number of prompt tokens of its first pass, None before that.
    encoded : list or None
        How its images were encoded: `generate` encodes them once, before the first step.
    prompt : Mapping or None
        Token ids and pixels of its first pass.
    used : Tensor or None
        ``(b, s)`` bool, the visual tokens of the first pass whose logits were used. Words follow
        them later, but in a cache they would still be there.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    held: bool = False
    length: int | None = None
    encoded: list[dict[str, Any]] | None = None
    prompt: Mapping[str, Any] | None = None
    used: Tensor | None = None

    def recall_used(self, used: Tensor) -> Tensor:
        """The visual tokens ``(b, s)`` whose logits are used, now or in the first pass."""
        if self.used is None:
            self.used = used
        more = used.shape[1] - self.used.shape[1]
        return used | torch.nn.functional.pad(self.used, (0, more))

    def check_prompt(self, arguments: Mapping[str, Any]) -> None:
        """Refuse a pass that is about another prompt than the first.

        Parameters
        ----------
        arguments : Mapping
            Of the multimodal model's forward.
        """
        given = {name: arguments.get(name) for name in ("input_ids", *PIXELS)}
        if self.prompt is None:
            self.prompt = given
        elif not all(_begins_with(each, self.prompt[name]) for name, each in given.items()):
            raise InputError(
                "what to keep was chosen for another prompt: inside the `with` of hold() every "
                "text must begin with the first one, and have its pictures. Leave it, and enter "
                "another one for the next prompt."
            )


def _begins_with(values: Any, first: Any) -> bool:
    """Whether token ids or pixels are those of the prompt, maybe with more ids after them."""
    if values is first or not isinstance(values, Tensor) or not isinstance(first, Tensor):
        return values is first
    return torch.equal(values[:, : first.shape[1]], first)


class ModelCalls:
    """Remembers, for each thread, the call of a model that is under way."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._local = model, threading.local()

    def watch(self, hooks: Hooks) -> None:
        """Put hooks on the whole model."""
        # Not hooks on the module: adapters call its forward directly.
        hooks.around(self._model, "forward", self._forward, compiled=True)
        if hasattr(self._model, "generate"):
            hooks.around(self._model, "generate", self._generate, compiled=True)
            hooks.around(self._model, "prepare_inputs_for_generation", self._prepare)
        if hasattr(self._model, "init_continuous_batching"):
            hooks.around(self._model, "init_continuous_batching", _refuse_continuous_batching)

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

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        given = kwargs
        if args:
            names = inspect.signature(type(self._model).forward).parameters
            given = {**dict(zip(list(names)[1:], args, strict=False)), **kwargs}
        found = {name: given.get(name) for name in LABELS}
        self._local.labels = {name: each for name, each in found.items() if each is not None}
        try:
            return original(*args, **kwargs)
        finally:
            self._local.labels = {}

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Choose once for all calls of this thread meanwhile that have no cache."""
        with self._go_on(Generation(held=True)):
            yield

    def take_generation(self, shape: tuple[int, int]) -> Generation | None:
        """The generation that a pass of this shape is a step of; None for any other call.

        `generate` prepares the inputs of each of its steps just before it calls the model.
        """
        prepared, self._local.prepared = getattr(self._local, "prepared", None), None
        found = self.generation
        return found if found is not None and (found.held or prepared == shape) else None

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._go_on(Generation()):
            return original(*args, **kwargs)

    def _prepare(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        given = [found.get(name) for name in ("input_ids", "inputs_embeds")]
        self._local.prepared = next((tuple(e.shape[:2]) for e in given if e is not None), None)
        return found

    @contextmanager
    def _go_on(self, generation: Generation) -> Iterator[None]:
        outer = self.generation
        self._local.generation = generation
        try:
            yield
        finally:
            self._local.generation, self._local.prepared = outer, None


def _refuse_continuous_batching(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    raise InputError(CONTINUOUS)
