"""`tc.prune`: one line that makes a model run a method."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from html import escape
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.budget import Budget
from tokencover.errors import InputError
from tokencover.families import family_of
from tokencover.methods import Method, make_method, parse_method
from tokencover.pruning.prompt import GivenMask, Words, choose_words
from tokencover.pruning.session import Session
from tokencover.pruning.trace import Trace
from tokencover.pruning.vision import EncoderMemory

_pruned: Any = WeakIdKeyDictionary()


class Run:
    """A method at work on a model: a context manager, or a handle with `remove`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def trace(self) -> list[Trace]:
        """What was kept of each sample of the latest prompt that had visual tokens.

        It is empty before that; ``trace[0]`` then says so.
        """
        return self._session.trace

    def recall_with(self, memory: EncoderMemory) -> AbstractContextManager[None]:
        """Let a memory that is put on the model answer for its vision tower meanwhile."""
        return self._session.recall_with(memory)

    def hold(self) -> AbstractContextManager[None]:
        """Choose once for one prompt, in a loop of one's own that has no cache.

        Such a loop computes the whole text anew for every word, and methods that look at the last
        token would choose anew each time. In the `with` block of this all calls without a cache
        keep what was chosen for the first, as `generate` does by itself.

        Examples
        --------
        >>> with tc.prune(model, tc.FastV(64)) as run, run.hold():          # doctest: +SKIP
        ...     for _ in range(32):
        ...         logits = model(**inputs, use_cache=False).logits
        """
        return self._session.calls_of_model.hold()

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

    def _repr_html_(self) -> str:
        shown = "".join(each._repr_html_() for each in self.trace) or "<div>nothing yet</div>"
        return f"<div><div>{escape(repr(self))}</div>{shown}</div>"


def prune(
    model: nn.Module,
    method: Method | str,
    *,
    budget: Budget | None = None,
    prompt: Tensor | str | Sequence[str] | Words | None = None,
    processor: Any = None,
    visual: Tensor | None = None,
) -> Run:
    """Make a model drop visual tokens, until the `with` block ends or `remove` is called.

    Parameters
    ----------
    model : PreTrainedModel
        A supported vision-language model, as ``from_pretrained`` returns it, or a PEFT model around
        one.
    method : Method or str
        What to keep, for example ``tc.MoB(budget=64)``, or a name as on the command line:
        ``"mob"``, ``"fastv:after=3"``.
    budget : int or float, optional
        With a name: K, a number of visual tokens, or a fraction of them.
    prompt : Tensor, str, list of str or callable, optional
        What counts as the prompt: a mask ``(batch, length)`` over ``input_ids``, a text that
        stands in it, or what makes such a mask of ``input_ids`` and the mask of visual positions.
        By default the user's own words, which the model's tokenizer tells.
    processor : processor or tokenizer, optional
        Where to learn what the user's words are; by default the tokenizer that lies beside the
        model's weights.
    visual : Tensor, optional
        Which positions are visual, a mask ``(batch, length)``, for calls with ``inputs_embeds``
        instead of ``input_ids``. Where each lies in its picture is then not known: every run of
        them counts as an image of one row.

    Examples
    --------
    >>> with tc.prune(model, tc.MoB(budget=64)) as run:          # doctest: +SKIP
    ...     answer = model.generate(**inputs, max_new_tokens=32)
    >>> run.trace[0].prompt_centers                              # doctest: +SKIP
    """
    model = _unwrap(model)
    family = family_of(model)
    method = _resolve_method(method, budget)
    if model in _pruned:
        raise InputError(
            f"this model is pruned already, by {_pruned[model]!r}: leave that `with` block, or "
            "call remove() on it, first."
        )
    words = choose_words(model, prompt, processor)
    given = None if visual is None else GivenMask(visual, "visual")
    run = Run(Session(model, family, method, words, given))
    run._session.install()
    _pruned[model] = run
    return run


def _resolve_method(method: Method | str, budget: Budget | None) -> Method:
    """The method itself, or the one with this name and budget."""
    if isinstance(method, str):
        spec = parse_method(method)
        return make_method(spec if budget is None else {**spec, "budget": budget})
    if not isinstance(method, Method):
        raise InputError(
            "method must be a method such as tc.MoB(budget=64) or a name such as 'mob', got "
            f"{method!r}."
        )
    if budget is not None:
        raise InputError(
            f"budget={budget} goes with the name of a method. Set it in the method instead: "
            f"tc.{type(method).__name__}(budget={budget})."
        )
    return method


def _unwrap(model: nn.Module) -> nn.Module:
    """The model inside the wrapper of PEFT, whose adapters lie in its modules."""
    get_base_model = getattr(model, "get_base_model", None)
    return get_base_model() if isinstance(model, nn.Module) and get_base_model else model
