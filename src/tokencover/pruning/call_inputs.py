"""What each pass of the model gets: real, visual and prompt tokens, and the caller's masks."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional

from tokencover.errors import InputError, TokenCoverWarning
from tokencover.families import Family, build_fallback_layout, needs_own_masks
from tokencover.methods import Method
from tokencover.pruning.decoder.cache import PrunedCache, check_lengths
from tokencover.pruning.decoder.masks import check_readable
from tokencover.pruning.passes import (
    CONTINUOUS,
    LABELS,
    PIXELS,
    CallState,
    Generation,
    ModelCalls,
    Pass,
    PromptTokens,
)
from tokencover.pruning.vision.encoder_calls import EncoderCalls

PromptSelector = Callable[[Tensor, Tensor], Tensor]
"""Marks the prompt tokens: (input_ids, visual mask) -> mask, all ``(b, s)``."""

IGNORED = -100
"""The label of a token that is not scored."""
TOKEN_TYPES = ("token_type_ids", "mm_token_type_ids")
"""Arguments that mark visual tokens, for masks in both directions."""
_HIDDEN = -1e4
"""Added to attention logits of hidden tokens, at the most."""
_UNPACK = "While pruning, give each document a separate row, padded to the longest."


class GivenMask:
    """A mask ``(b, s)`` that the caller passed to `tc.prune` as the argument `name`."""

    def __init__(self, mask: Tensor, name: str = "prompt") -> None:
        self._mask, self._name = mask, name

    def fit(self, real: Tensor, generation: Generation | None) -> Tensor:
        """The mask, repeated for the beams of generate and padded for generated tokens."""
        batch, length = real.shape
        if generation is not None and generation.length is not None:
            length = generation.length
        mask = self._mask.to(real.device).bool()
        rows = len(mask) if mask.dim() == 2 else 0
        fits = rows > 0 and (batch == rows if generation is None else batch % rows == 0)
        if not fits or mask.shape[1] != length:
            raise InputError(
                f"{self._name}= is a mask of shape {tuple(mask.shape)}, but the prompt has shape "
                f"{(batch, length)}. Pass one value per token."
            )
        repeated = mask.repeat_interleave(batch // rows, dim=0)
        return functional.pad(repeated, (0, real.shape[1] - length))


class PassReader:
    """Determines the real, visual and prompt tokens of each pass.

    `selector` marks prompt tokens. `visual` marks visual tokens where the model gets embeddings
    instead of ids.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        method: Method,
        selector: PromptSelector | GivenMask,
        visual: GivenMask | None,
        calls: EncoderCalls,
        model_calls: ModelCalls,
        state: CallState,
    ) -> None:
        self._config: Any = model.config
        whole: Any = model
        self._embedding: Any = whole.get_input_embeddings()
        self._family, self._method = family, method
        self._text_config: Any = model.get_submodule(family.decoder).config
        self._own_masks = needs_own_masks(family, model)
        self._selector, self._visual = selector, visual
        self._calls, self._model_calls, self._state = calls, model_calls, state

    def read(self, arguments: Mapping[str, Any]) -> Pass:
        """The pass that begins with these arguments of the multimodal model's forward."""
        if arguments.get("write_index") is not None:  # of a manager that was there before
            raise InputError(CONTINUOUS)
        tokens = arguments.get("input_ids")
        if tokens is None:
            tokens = self._require_embeddings(arguments)[..., 0]
        check_executed(tokens, self._embedding)
        cache = arguments.get("past_key_values")
        check_lengths(cache)
        cached = 0 if cache is None else int(cache.get_seq_length())
        shape = (tokens.shape[0], tokens.shape[1])
        mask = arguments.get("attention_mask")
        is_static = getattr(cache, "is_compileable", False)
        real, past = get_real_tokens(mask, shape, tokens.device, cached, is_static)
        generation = self._model_calls.take_generation(shape)
        found = self._read_tokens(arguments, real, past, cached, generation)
        if found.has_visual or isinstance(cache, PrunedCache):
            if self._own_masks:  # first: such a cache's masks would be read as documents
                check_readable(self._text_config, cache)
            attention = getattr(self._text_config, "_attn_implementation", None)
            check_structure(arguments, real, cached, is_flash="flash" in str(attention))
        return Pass(found)

    def _require_embeddings(self, arguments: Mapping[str, Any]) -> Tensor:
        """The embeddings that the model got instead of token ids."""
        if self._visual is None:
            raise InputError(
                "Cannot locate visual tokens when the model is called without input_ids. Pass "
                "input_ids, or tc.prune(..., visual=mask)."
            )
        found: Tensor = arguments["inputs_embeds"]
        return found

    def _read_tokens(
        self,
        arguments: Mapping[str, Any],
        real: Tensor,
        past: Tensor | None,
        cached: int,
        generation: Generation | None,
    ) -> PromptTokens:
        """The tokens of the pass."""
        input_ids = arguments.get("input_ids")
        given = None
        if self._visual is not None and not cached:  # after a cached prompt there is only text
            given = self._visual.fit(real, generation)
        if input_ids is None:
            self._check_embeddings()
            visual = torch.zeros_like(real) if given is None else given & real
        else:
            kinds, known = list_media_kinds(arguments)
            visual = self._mark(input_ids, kinds) & real
            _check_agreement(given, visual, real)
        if not bool(visual.any()):
            if input_ids is not None and not cached and not kinds:
                self._warn_without_pixels(input_ids, real)
            return PromptTokens(
                real=real, visual=visual, prompt=visual, used=visual, past=past, before=cached
            )
        tokens = real.long() if input_ids is None else input_ids
        prompt = self._select_prompt(tokens, visual, real, generation)
        without_cache = generation if arguments.get("past_key_values") is None else None
        locate = self._calls.locate_tokens
        if input_ids is None:
            locate = functools.partial(build_fallback_layout, visual)
        else:
            if without_cache is not None:
                without_cache.encoded = self._calls.recall(without_cache.encoded)
            self._calls.begin(arguments, known)
        used = mark_used(visual, real, **self._get_labels(arguments))
        if generation is not None:
            generation.length = generation.length or real.shape[1]
        if without_cache is not None:
            if without_cache.held:
                without_cache.check_prompt(arguments)
            used = without_cache.recall_used(used)
        return PromptTokens(
            real=real,
            visual=visual,
            prompt=prompt,
            used=used,
            past=past,
            before=cached,
            locate=locate,
            generation=without_cache,
            both_directions=self._family.both_directions
            and cached == 0
            and any(arguments.get(name) is not None for name in TOKEN_TYPES),
        )

    def _get_labels(self, arguments: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """The labels of the call; the multimodal model may be the whole model (Llama 4)."""
        own = {name: arguments[name] for name in LABELS if arguments.get(name) is not None}
        return own or self._state.labels

    def _mark(self, input_ids: Tensor, kinds: Collection[str]) -> Tensor:
        """The placeholder tokens of these kinds of media, ``(b, s)`` bool."""
        ids = self._family.visual_ids(self._config, kinds)
        return torch.isin(input_ids, torch.tensor(ids, device=input_ids.device))

    def _select_prompt(
        self, tokens: Tensor, visual: Tensor, real: Tensor, generation: Generation | None
    ) -> Tensor:
        """The prompt tokens ``(b, s)``; none where the selection is known or needs no prompt."""
        is_known = generation is not None and generation.length is not None
        if not self._method.reads_prompt or is_known:
            return torch.zeros_like(real)
        if isinstance(self._selector, GivenMask):
            prompt = self._selector.fit(real, generation)
        else:
            prompt = self._selector(tokens, visual)
            if prompt.shape != real.shape:
                raise InputError(
                    f"The prompt mask has shape {tuple(prompt.shape)}, but input_ids has shape "
                    f"{tuple(real.shape)}. Return one value per token."
                )
        prompt = prompt.to(real.device).bool() & real & ~visual
        if isinstance(self._selector, GivenMask):
            _check_not_empty(prompt, visual)
        return prompt

    def _warn_without_pixels(self, input_ids: Tensor, real: Tensor) -> None:
        """Warn if a prompt has image or video tokens, but the call has nothing to put there."""
        count = int((self._mark(input_ids, ("image", "video")) & real).sum())
        if count:
            warnings.warn(
                f"The prompt has {count} visual tokens, but the model was called without pixels, "
                "so it attends to placeholder embeddings and nothing is pruned. Pass the "
                "processor's pixel_values. (generate(prefill_chunk_size=...) drops them.)",
                TokenCoverWarning,
                stacklevel=2,
            )

    def _check_embeddings(self) -> None:
        """Reject embeddings where the method needs ids or pixels."""
        if self._calls.has_listeners:
            raise InputError(
                f"{type(self._method).__name__} acts in the vision encoder, which does not run "
                "when the model is called with inputs_embeds. Pass input_ids and pixels."
            )
        if self._method.reads_prompt and not isinstance(self._selector, GivenMask):
            raise InputError(
                "Cannot locate prompt tokens when the model is called with inputs_embeds. Pass "
                "tc.prune(..., prompt=mask)."
            )


def _check_agreement(given: Tensor | None, visual: Tensor, real: Tensor) -> None:
    """Reject a visual mask that contradicts the token ids."""
    if given is not None and not torch.equal(given & real, visual):
        raise InputError(
            f"visual= marks {int((given & real).sum())} positions, but input_ids has "
            f"{int(visual.sum())} visual tokens or has them elsewhere. Omit visual= when the model "
            "is called with input_ids."
        )


def _check_not_empty(prompt: Tensor, visual: Tensor) -> None:
    """Reject samples that have visual tokens, but no prompt token in the caller's mask."""
    empty = (visual.any(-1) & ~prompt.any(-1)).nonzero().flatten().tolist()
    if empty:
        raise InputError(
            f"prompt= marks no text token of sample {empty[0]}. Mark the tokens of the question, "
            "or omit prompt= to locate them by the chat template."
        )


def list_media_kinds(arguments: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Whether the call has images, videos or both, and which of them are encoded already."""
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
    `labels` ``(b, s)`` are for each token, `shift_labels` for the one after it.
    """
    after = real.flip(-1).cumsum(-1).flip(-1)
    used = real & (after == 1)
    if shift_labels is None and labels is not None:
        shift_labels = functional.pad(labels, (0, 1), value=IGNORED)[:, 1:]
    if shift_labels is not None and shift_labels.shape == used.shape:
        scored = shift_labels.to(used.device) != IGNORED
        if bool((scored & ~real).any()):
            warnings.warn(
                "A label follows padding (for example on BOS with left padding). Pruning drops "
                "padding, so that label is scored with logits of zero. Set it to -100.",
                TokenCoverWarning,
                stacklevel=2,
            )
        used = used | scored
    return used & visual


# ---- masks and positions of the caller: padding is read, other structure rejected -------------


def check_executed(tokens: Tensor, embedding: Any) -> None:
    """Reject passes without values, which a selection depends on.

    `tokens` ``(b, s)`` are ids, or a column of the embeddings. accelerate loads offloaded weights
    when the `embedding` runs.
    """
    weight = getattr(embedding, "weight", tokens)
    is_empty = weight.device.type == "meta" and not hasattr(embedding, "_hf_hook")
    if is_empty or tokens.device.type == "meta" or isinstance(tokens, FakeTensor):
        raise InputError(
            "The model or its inputs have no values (meta device or fake tensors), so no tokens "
            "can be selected. Load the weights and move the inputs to the model's device."
        )


def get_real_tokens(
    mask: Any, shape: tuple[int, int], device: torch.device, cached: int, is_static: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Which new tokens are real, and which earlier ones, from any `attention_mask`.

    A static cache has places for tokens to come, which the mask may have columns for.
    """
    batch, length = shape
    mask = _get_full_mask(mask)
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=device), None
    if mask.dim() == 4:
        real, past = _read_table(_cut_table(mask, length, cached))
        return real.expand(batch, -1), past.expand(batch, -1)
    _check_width(mask.shape[1], length, cached, is_static)
    mask = mask.bool()
    return mask[:, cached : cached + length], mask[:, :cached]


def _check_width(columns: int, length: int, cached: int, is_static: bool) -> None:
    """Reject a mask of another width than the tokens.

    Columns after them do no harm in a prompt, or where a cache has room for them. Elsewhere the
    cache may have lost tokens silently: keys and values that were put there by hand.
    """
    spare = columns - cached - length
    if spare < 0 or (spare > 0 and cached > 0 and not is_static):
        raise InputError(
            f"attention_mask has {columns} columns, but there are {cached} tokens in the cache and "
            f"{length} new ones. Pass one column per token. (Keys and values of a pruned prompt "
            "that were put into a cache by hand do not record what was dropped. Use copy.deepcopy.)"
        )


def check_structure(
    arguments: Mapping[str, Any], real: Tensor, cached: int, is_flash: bool = False
) -> None:
    """Reject masks and positions with more structure than causality and padding.

    `real` ``(b, s)`` bool marks the new tokens that are no padding, after `cached` ones.
    """
    mask = _get_full_mask(arguments.get("attention_mask"))
    if isinstance(mask, Tensor) and mask.dim() == 4:
        _check_table(mask, real, cached)
    # Flash attention drops a mask of ones, and reads the documents of a single row as without one.
    plain = mask is None or (mask.dim() == 2 and len(mask) == 1 and bool(mask.all()) and is_flash)
    if plain and cached == 0:
        _check_positions(arguments.get("position_ids"))
    if arguments.get("cu_seq_lens_q") is not None:
        raise InputError(f"cu_seq_lens_q packs several documents into one row. {_UNPACK}")


def _get_full_mask(mask: Any) -> Tensor | None:
    found: Tensor | None = mask["full_attention"] if isinstance(mask, Mapping) else mask
    return found


def _cut_table(mask: Tensor, length: int, cached: int) -> Tensor:
    """Which tokens each new token attends to, ``(b or 1, length, cached + length)`` bool."""
    table = mask[:, 0, -length:, : cached + length]
    return table if table.dtype == torch.bool else table >= 0


def _read_table(table: Tensor) -> tuple[Tensor, Tensor]:
    """Which new tokens are real, and which earlier ones, from what each new token attends to.

    The last token, or another later one, attends to every real token. Rows of padding mean nothing:
    they may be empty, or contain the token itself, or everything, later tokens too. Where the last
    row is empty, padding attends to nothing, and real tokens attend to themselves.
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
    """Raise unless every real token attends to all real tokens before it, and no others."""
    length = real.shape[1]
    seen = _cut_table(mask, length, cached)
    new, past = _read_table(seen)
    positions = torch.arange(cached + length, device=mask.device)
    causal = positions <= positions[cached:].unsqueeze(-1)
    expected = causal & torch.cat([past, new], -1).unsqueeze(-2)
    plain = mask.dtype == torch.bool or bool(((mask == 0) | (mask < _HIDDEN)).all())
    alike = bool((mask == mask[:, :1]).all())
    if not plain or not alike or bool(((seen != expected) & new.unsqueeze(-1)).any()):
        raise InputError(
            f"attention_mask of shape {tuple(mask.shape)} has more structure than causality and "
            "padding (several documents, a prefix or weights), which is lost when tokens are "
            f"dropped. {_UNPACK}"
        )


def _check_positions(position_ids: Any) -> None:
    """Reject positions with gaps: without a mask, transformers reads them as documents."""
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
            f"position_ids do not increase by one after token {column} of row {row}. Several "
            f"documents in one row would be read as one when tokens are dropped. {_UNPACK}"
        )
