"""How the model is called, and what each pass is about: ids, masks, positions, labels."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Choice, Method
from tokencover.runtime.call_structure import check_structure, find_real_tokens
from tokencover.runtime.decoder import PrunedCache, check_lengths, check_readable
from tokencover.runtime.families import Family, lay_in_lines, needs_own_masks
from tokencover.runtime.forward_pass import ForwardPass, VisualPass
from tokencover.runtime.hooks import Hooks
from tokencover.runtime.prompt import GivenMask, Words
from tokencover.runtime.tower import PIXELS, EncoderCalls

LABELS = ("labels", "shift_labels")
"""The arguments that say what is scored."""
IGNORED = -100
"""The label of a token that is not scored."""
_CONTINUOUS = (
    "continuous batching (generate_batch, cache_implementation='paged') takes no pictures, and "
    "keeps keys and values where pruning cannot shorten them: use generate, or leave the `with` of "
    "tc.prune first."
)


@dataclass(slots=True)
class Generation:
    """What was chosen for the prompt that `generate`, or a loop of the caller's, goes on from.

    Without a cache the prompt comes again with every new word. What is kept of it stays the same,
    as it does with a cache.

    Attributes
    ----------
    choices : dict
        For each decoder block before which the method acted.
    held : bool
        Whether it is a loop of the caller's, who may mistake one prompt for another.
    prompt : Mapping or None
        Token ids and pixels of its first pass.
    used : Tensor or None
        ``(b, s)`` bool, the visual tokens of the first pass whose logits were used. Words follow
        them later, but in a cache they would still be there.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    held: bool = False
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

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._go_on(Generation()):
            return original(*args, **kwargs)

    @contextmanager
    def _go_on(self, generation: Generation) -> Iterator[None]:
        outer = self.generation
        self._local.generation = generation
        try:
            yield
        finally:
            self._local.generation = outer


def _refuse_continuous_batching(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    raise InputError(_CONTINUOUS)


class PassReader:
    """Finds the real, the visual and the prompt tokens of each pass.

    Parameters
    ----------
    model, family, method
        See `Session`.
    words : Words
        Finds the prompt words.
    visual : GivenMask or None
        Says what is visual where there are embeddings instead of ids.
    calls : EncoderCalls
        Knows the pictures of the pass.
    model_calls : ModelCalls
        Knows the labels of the pass.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        method: Method,
        words: Words,
        visual: GivenMask | None,
        calls: EncoderCalls,
        model_calls: ModelCalls,
    ) -> None:
        self._config: Any = model.config
        self._family, self._method = family, method
        self._text_config: Any = model.get_submodule(family.decoder).config
        self._own_masks = needs_own_masks(family, model)
        self._words, self._visual = words, visual
        self._calls, self._model_calls = calls, model_calls

    def read(self, arguments: Mapping[str, Any]) -> ForwardPass:
        """The pass that begins with these arguments of the multimodal model's forward."""
        if arguments.get("write_index") is not None:  # of a manager that was there before
            raise InputError(_CONTINUOUS)
        tokens = arguments.get("input_ids")
        if tokens is None:
            tokens = self._require_embeddings(arguments)[..., 0]
        cache = arguments.get("past_key_values")
        check_lengths(cache)
        cached = 0 if cache is None else int(cache.get_seq_length())
        shape = (tokens.shape[0], tokens.shape[1])
        mask = arguments.get("attention_mask")
        is_static = getattr(cache, "is_compileable", False)
        real, past = find_real_tokens(mask, shape, tokens.device, cached, is_static)
        found = self._find_visual(arguments, real, past, cached)
        generation = self._model_calls.generation
        if found is not None and cache is None and generation is not None:
            if generation.held:
                generation.check_prompt(arguments)
            found.used = generation.recall_used(found.used)
        if found is not None or isinstance(cache, PrunedCache):
            if self._own_masks:  # first: the tables of such a cache would be taken for documents
                check_readable(self._text_config, cache)
            attention = getattr(self._text_config, "_attn_implementation", None)
            check_structure(arguments, real, cached, is_flash="flash" in str(attention))
        return found or ForwardPass(real, past, cached)

    def _require_embeddings(self, arguments: Mapping[str, Any]) -> Tensor:
        """The embeddings that the model was given instead of token ids."""
        if self._visual is None:
            raise InputError(
                "the model was called without input_ids, so it is not known which positions are "
                "visual: pass input_ids, or give tc.prune a mask of them, visual=mask."
            )
        found: Tensor = arguments["inputs_embeds"]
        return found

    def _find_visual(
        self, arguments: Mapping[str, Any], real: Tensor, past: Tensor | None, cached: int
    ) -> VisualPass | None:
        """The pass, if there are visual tokens in it."""
        input_ids = arguments.get("input_ids")
        if input_ids is None:
            visual = self._read_mask(real, cached) & real
        else:
            kinds, known = find_media_kinds(arguments)
            visual = self._mark(input_ids, kinds) & real
        if not bool(visual.any()):
            return None
        tokens = real.long() if input_ids is None else input_ids
        words = self._words(tokens, visual) if self._method.reads_prompt else ~real
        find_places = self._calls.find_places
        if input_ids is None:
            find_places = functools.partial(lay_in_lines, visual)
        else:
            self._calls.begin(arguments, known)
        return VisualPass(
            real=real,
            past=past,
            before=cached,
            visual=visual,
            prompt=words & real & ~visual,
            used=mark_used(visual, real, **self._find_labels(arguments)),
            find_places=find_places,
        )

    def _find_labels(self, arguments: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """The labels of the call; the multimodal model may be the whole model (Llama 4)."""
        own = {name: arguments[name] for name in LABELS if arguments.get(name) is not None}
        return own or self._model_calls.labels

    def _mark(self, input_ids: Tensor, kinds: Collection[str]) -> Tensor:
        """The tokens that stand for pieces of such pictures, ``(b, s)`` bool."""
        ids = self._family.visual_ids(self._config, kinds)
        return torch.isin(input_ids, torch.tensor(ids, device=input_ids.device))

    def _read_mask(self, real: Tensor, cached: int) -> Tensor:
        """What the caller says is visual, where there are embeddings instead of ids."""
        if self._calls.has_listeners:
            raise InputError(
                f"{type(self._method).__name__} acts in the vision tower, which does not run when "
                "the model is given inputs_embeds: give it input_ids and pixels."
            )
        if self._method.reads_prompt and not isinstance(self._words, GivenMask):
            raise InputError(
                "the prompt words cannot be read from inputs_embeds: give tc.prune a mask of them, "
                "prompt=mask."
            )
        if self._visual is None or cached:  # what goes on from a cache is text
            return torch.zeros_like(real)
        return self._visual(real.long(), real)


def find_media_kinds(arguments: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Whether the call brings images, videos or both, and which of them are encoded already."""
    encoded = arguments.get("mm_encoder_outputs") or {}
    known = [name for name in encoded if encoded[name] is not None]
    raw = [name for name in PIXELS if arguments.get(name) is not None]
    # The model is going to encode the raw ones; PerceptionLM's videos are raw in `generate`, where
    # its images are not.
    kinds = ["video" if name.endswith("videos") else "image" for name in raw]
    return [*known, *(kind for kind in kinds if kind not in known)], known


def mark_used(
    visual: Tensor,
    real: Tensor,
    labels: Tensor | None = None,
    shift_labels: Tensor | None = None,
) -> Tensor:
    """The visual tokens whose logits are used, ``(b, s)`` bool.

    The last token of a row predicts the next one, and a token before one with a label is scored.

    Parameters
    ----------
    visual, real : Tensor
        ``(b, s)`` bool.
    labels, shift_labels : Tensor, optional
        ``(b, s)``, as the model was given them: for each token, or for the one after it.
    """
    after = real.flip(-1).cumsum(-1).flip(-1)
    used = real & (after == 1)
    if shift_labels is None and labels is not None:
        shift_labels = torch.nn.functional.pad(labels, (0, 1), value=IGNORED)[:, 1:]
    if shift_labels is not None and shift_labels.shape == used.shape:
        used = used | (shift_labels.to(used.device) != IGNORED)
    return used & visual
