"""How the model is called, and what each pass is about: ids, masks, positions, labels."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Choice, Method
from tokencover.runtime.decoder import PrunedCache
from tokencover.runtime.families import Family, lay_in_lines
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
_HIDDEN = -1e4
"""What is added to the logits of attention for a token that must not be seen, at the most."""


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

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outer = self.generation
        self._local.generation = Generation()
        try:
            return original(*args, **kwargs)
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
        self._config, self._family, self._method = model.config, family, method
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
        cached = 0 if cache is None else int(cache.get_seq_length())
        shape = (tokens.shape[0], tokens.shape[1])
        mask = arguments.get("attention_mask")
        real, past = find_real_tokens(mask, shape, tokens.device, cached)
        found = self._find_visual(arguments, real, past, cached)
        if found is not None or isinstance(cache, PrunedCache):
            check_structure(arguments, real, cached)
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
            used=mark_used(visual, real, **self._model_calls.labels),
            find_places=find_places,
        )

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


def find_real_tokens(
    mask: Any, shape: tuple[int, int], device: torch.device, cached: int
) -> tuple[Tensor, Tensor | None]:
    """Which new tokens are real, and which earlier ones, from whatever mask the model was given.

    Parameters
    ----------
    mask : Any
        The ``attention_mask`` of the call.
    shape : tuple of int
        Rows and new tokens in each.
    device : torch.device
        Where the tokens are.
    cached : int
        Tokens in the cache before this pass.
    """
    batch, length = shape
    mask = _find_full_mask(mask)
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=device), None
    if mask.dim() == 4:
        real, past = _read_table(_cut_table(mask, length, cached))
        return real.expand(batch, -1), past.expand(batch, -1)
    mask = mask.bool()
    if mask.shape[1] < length:
        raise InputError(
            f"attention_mask has {mask.shape[1]} columns for {length} tokens: give every token one."
        )
    split = mask.shape[1] - length
    return mask[:, split:], mask[:, :split]


def find_media_kinds(arguments: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Whether the call brings images, videos or both, and which of them are encoded already."""
    encoded = arguments.get("mm_encoder_outputs") or {}
    known = [name for name in encoded if encoded[name] is not None]
    raw = [name for name in PIXELS if arguments.get(name) is not None]
    # The model is going to encode the raw ones; PerceptionLM's videos are raw in `generate`, where
    # its images are not.
    kinds = ["video" if name.endswith("videos") else "image" for name in raw]
    return [*known, *(kind for kind in kinds if kind not in known)], known


def check_structure(arguments: Mapping[str, Any], real: Tensor, cached: int) -> None:
    """Refuse masks and positions that hold more than causality and padding.

    Parameters
    ----------
    arguments : Mapping
        Of the multimodal model's forward.
    real : Tensor
        ``(b, s)`` bool, the new tokens that are not padding.
    cached : int
        Tokens in the cache before this pass.
    """
    mask = _find_full_mask(arguments.get("attention_mask"))
    if isinstance(mask, Tensor) and mask.dim() == 4:
        _check_table(mask, real, cached)
    if mask is None and cached == 0:
        _check_positions(arguments.get("position_ids"))
    if arguments.get("cu_seq_lens_q") is not None:
        raise InputError(f"cu_seq_lens_q packs several documents into one row: {_UNPACK}")


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


_UNPACK = "while pruning, give each document a row of its own, padded to the longest."


def _find_full_mask(mask: Any) -> Tensor | None:
    found: Tensor | None = mask["full_attention"] if isinstance(mask, Mapping) else mask
    return found


def _see(table: Tensor) -> Tensor:
    """Which tokens may be seen, from a table of booleans or of what is added to logits."""
    return table if table.dtype == torch.bool else table >= 0


def _cut_table(mask: Tensor, length: int, cached: int) -> Tensor:
    """Which tokens each new token sees, ``(b or 1, length, cached + length)`` bool."""
    return _see(mask[:, 0, -length:, : cached + length])


def _read_table(table: Tensor) -> tuple[Tensor, Tensor]:
    """Which new tokens are real, and which earlier ones, from what each new token sees.

    A real token is seen by the last one, or by another that comes later. The rows of padding mean
    nothing: they may be empty, or hold the token itself, or everything, later tokens too. Where the
    last row is empty, padding sees nothing, and a real token is one that sees itself.
    """
    length = table.shape[1]
    cached = table.shape[2] - length
    new = table[..., cached:]
    sees_later_tokens = new.triu(1).any(-1, keepdim=True)
    seen_later = (new & ~sees_later_tokens).tril(-1).any(-2)
    sees_itself = new.diagonal(dim1=-2, dim2=-1)
    ends_empty = ~table[:, -1:].any(-1)
    real = torch.where(ends_empty, sees_itself, new[:, -1] | seen_later)
    past = table[..., :cached].any(-2)
    return real, past


def _check_table(mask: Tensor, real: Tensor, cached: int) -> None:
    """Every real token must see all real tokens before it, and no others."""
    length = real.shape[1]
    seen = _cut_table(mask, length, cached)
    new, past = _read_table(seen)
    places = torch.arange(cached + length, device=mask.device)
    causal = places <= places[cached:].unsqueeze(-1)
    expected = causal & torch.cat([past, new], -1).unsqueeze(-2)
    plain = mask.dtype == torch.bool or bool(((mask == 0) | (mask < _HIDDEN)).all())
    alike = bool((mask == mask[:, :1]).all())
    if not plain or not alike or bool(((seen != expected) & new.unsqueeze(-1)).any()):
        raise InputError(
            f"attention_mask of shape {tuple(mask.shape)} holds more than causality and padding "
            "(several documents, a prefix or weights): that structure would be lost when tokens "
            f"are dropped; {_UNPACK}"
        )


def _check_positions(position_ids: Any) -> None:
    """Without a mask, transformers reads positions that do not go on by one as documents."""
    if not isinstance(position_ids, Tensor):
        return
    if position_ids.dim() == 3:
        if len(position_ids) != 4:  # rows, columns and times only: those of text go first
            return
        position_ids = position_ids[0]
    restarts = (position_ids.diff(dim=-1) != 1).nonzero()
    if len(restarts):
        row, column = restarts[0].tolist()
        raise InputError(
            f"position_ids do not go on by one after token {column} of row {row}: several "
            f"documents in one row would be read as one when tokens are dropped; {_UNPACK}"
        )
