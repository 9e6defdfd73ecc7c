"""`tc.prune`: one line that makes a model run a method."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime.families import family_of
from tokencover.runtime.session import Session, Words
from tokencover.runtime.trace import Trace
from tokencover.runtime.words import UserWords, text_mask, tokenizer_of

_pruned: Any = WeakIdKeyDictionary()


class Run:
    """A method at work on a model: a context manager, or a handle with `remove`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def trace(self) -> list[Trace]:
        """What was kept of each sample of the latest prompt that had visual tokens."""
        return self._session.trace

    def remove(self) -> None:
        """Give the model back as it was. Calling it again does nothing."""
        self._session.remove()
        _pruned.pop(self._session.model, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        name = type(self._session.model).__name__
        return f"Run({self._session.method!r} on {name}, {self._session.family.name})"


def prune(
    model: nn.Module,
    method: Method,
    *,
    prompt: Tensor | str | Sequence[str] | None = None,
    processor: Any = None,
) -> Run:
    """Make a model drop visual tokens, until the `with` block ends or `remove` is called.

    Parameters
    ----------
    model : PreTrainedModel
        A supported vision-language model, as ``from_pretrained`` returns it.
    method : Method
        What to keep, for example ``tc.MoB(budget=64)``.
    prompt : Tensor, str or list of str, optional
        What counts as the prompt: a mask ``(batch, length)`` over ``input_ids``, or a text that
        stands in it. By default the user's own words, which the model's tokenizer tells.
    processor : processor or tokenizer, optional
        Where to learn what the user's words are; by default the tokenizer that lies beside the
        model's weights.

    Examples
    --------
    >>> with tc.prune(model, tc.MoB(budget=64)) as run:          # doctest: +SKIP
    ...     answer = model.generate(**inputs, max_new_tokens=32)
    >>> run.trace[0].prompt_centers                              # doctest: +SKIP
    """
    family = family_of(model)
    if not isinstance(method, Method):
        raise InputError(
            f"method must be a tokencover method, tc.MoB(budget=64) say; got {method!r}."
        )
    if model in _pruned:
        raise InputError(
            f"this model is pruned already, by {_pruned[model]!r}: leave that `with` block, or "
            "call remove() on it, first."
        )
    run = Run(Session(model, family, method, _words(model, prompt, processor)))
    run._session.install()
    _pruned[model] = run
    return run


def _words(model: nn.Module, prompt: Any, processor: Any) -> Words:
    if isinstance(prompt, Tensor):
        return _GivenMask(prompt)
    if prompt is not None:
        reader = processor or tokenizer_of(model)
        return lambda input_ids, visual: text_mask(reader, input_ids, prompt)
    return _LazyWords(model, processor)


class _GivenMask:
    """The caller's own mask, repeated for beam search."""

    def __init__(self, mask: Tensor) -> None:
        self._mask = mask

    def __call__(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        mask = self._mask.to(input_ids.device).bool()
        behind = input_ids.shape[1] - mask.shape[-1]
        if mask.dim() != 2 or behind < 0 or len(input_ids) % len(mask):
            raise InputError(
                f"prompt is a mask of shape {tuple(mask.shape)}, but input_ids have shape "
                f"{tuple(input_ids.shape)}: give one value per token."
            )
        mask = torch.nn.functional.pad(mask, (0, behind))  # generated text is no prompt
        return mask.repeat_interleave(len(input_ids) // len(mask), dim=0)


class _LazyWords:
    """The tokenizer is loaded when the first picture comes, not before."""

    def __init__(self, model: nn.Module, processor: Any) -> None:
        self._model, self._processor = model, processor
        self._finder: UserWords | None = None

    def __call__(self, input_ids: Tensor, visual: Tensor) -> Tensor:
        if self._finder is None:
            self._finder = UserWords(self._processor or tokenizer_of(self._model))
        return self._finder.mask(input_ids, visual)
