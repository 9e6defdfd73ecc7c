"""What each pass of the model is about: ids, masks, positions, labels."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError, TokenCoverWarning
from tokencover.families import Family, build_fallback_layout, needs_own_masks
from tokencover.methods import Method
from tokencover.pruning.call_structure import check_executed, check_structure, find_real_tokens
from tokencover.pruning.decoder import PrunedCache, check_lengths, check_readable
from tokencover.pruning.forward_pass import ForwardPass, VisualPass
from tokencover.pruning.generation import CONTINUOUS, LABELS, Generation, ModelCalls
from tokencover.pruning.prompt import GivenMask, Words
from tokencover.pruning.vision import PIXELS, EncoderCalls

IGNORED = -100
"""The label of a token that is not scored."""


TOKEN_TYPES = ("token_type_ids", "mm_token_type_ids")
"""The arguments that say which tokens are visual, for masks in both directions."""


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
        whole: Any = model
        self._embedding: Any = whole.get_input_embeddings()
        self._family, self._method = family, method
        self._text_config: Any = model.get_submodule(family.decoder).config
        self._own_masks = needs_own_masks(family, model)
        self._words, self._visual = words, visual
        self._calls, self._model_calls = calls, model_calls

    def read(self, arguments: Mapping[str, Any]) -> ForwardPass:
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
        real, past = find_real_tokens(mask, shape, tokens.device, cached, is_static)
        generation = self._model_calls.take_generation(shape)
        found = self._find_visual(arguments, real, past, cached, generation)
        if found is not None and generation is not None:
            generation.length = generation.length or shape[1]
            if cache is None:
                if generation.held:
                    generation.check_prompt(arguments)
                found.used = generation.recall_used(found.used)
                found.generation = generation
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
        self,
        arguments: Mapping[str, Any],
        real: Tensor,
        past: Tensor | None,
        cached: int,
        generation: Generation | None,
    ) -> VisualPass | None:
        """The pass, if there are visual tokens in it."""
        input_ids = arguments.get("input_ids")
        given = None
        if self._visual is not None and not cached:  # after a cached prompt there is only text
            given = fit_mask(self._visual, real, generation)
        if input_ids is None:
            self._check_embeddings()
            visual = real.new_zeros(real.shape) if given is None else given & real
        else:
            kinds, known = find_media_kinds(arguments)
            visual = self._mark(input_ids, kinds) & real
            _check_agreement(given, visual, real)
        if not bool(visual.any()):
            if input_ids is not None and not cached and not kinds:
                self._warn_without_pixels(input_ids, real)
            return None
        tokens = real.long() if input_ids is None else input_ids
        words = self._find_words(tokens, visual, real, generation)
        find_places = self._calls.find_places
        if input_ids is None:
            find_places = functools.partial(build_fallback_layout, visual)
        else:
            if generation is not None and arguments.get("past_key_values") is None:
                generation.encoded = self._calls.recall(generation.encoded)
            self._calls.begin(arguments, known)
        return VisualPass(
            real=real,
            past=past,
            before=cached,
            visual=visual,
            prompt=words,
            used=mark_used(visual, real, **self._find_labels(arguments)),
            find_places=find_places,
            has_both_directions=self._family.both_directions
            and cached == 0
            and any(arguments.get(name) is not None for name in TOKEN_TYPES),
        )

    def _find_labels(self, arguments: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """The labels of the call; the multimodal model may be the whole model (Llama 4)."""
        own = {name: arguments[name] for name in LABELS if arguments.get(name) is not None}
        return own or self._model_calls.labels

    def _mark(self, input_ids: Tensor, kinds: Collection[str]) -> Tensor:
        """The tokens that stand for pieces of such pictures, ``(b, s)`` bool."""
        ids = self._family.visual_ids(self._config, kinds)
        return torch.isin(input_ids, torch.tensor(ids, device=input_ids.device))

    def _find_words(
        self, tokens: Tensor, visual: Tensor, real: Tensor, generation: Generation | None
    ) -> Tensor:
        """The prompt tokens ``(b, s)``; none where the selection is known or needs no prompt."""
        is_known = generation is not None and generation.length is not None
        if not self._method.reads_prompt or is_known:
            return torch.zeros_like(real)
        if isinstance(self._words, GivenMask):
            words = fit_mask(self._words, real, generation)
        else:
            words = self._words(tokens, visual)
            if words.shape != real.shape:
                raise InputError(
                    f"The prompt mask has shape {tuple(words.shape)}, but input_ids has shape "
                    f"{tuple(real.shape)}. Return one value per token."
                )
        words = words.to(real.device).bool() & real & ~visual
        if isinstance(self._words, GivenMask):
            _check_not_empty(words, visual)
        return words

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
        """Refuse embeddings where the method needs more than they tell."""
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


def fit_mask(mask: GivenMask, real: Tensor, generation: Generation | None) -> Tensor:
    """A mask of the caller's ``(b, s)``, repeated for beams and padded for generated tokens."""
    length = real.shape[1]
    if generation is not None and generation.length is not None:
        length = generation.length
    found = mask.fit((len(real), length), real.device, repeats=generation is not None)
    return torch.nn.functional.pad(found, (0, real.shape[1] - length))


def _check_agreement(given: Tensor | None, visual: Tensor, real: Tensor) -> None:
    """Reject a visual mask that contradicts the token ids."""
    if given is not None and not torch.equal(given & real, visual):
        raise InputError(
            f"visual= marks {int((given & real).sum())} positions, but input_ids has "
            f"{int(visual.sum())} visual tokens or has them elsewhere. Omit visual= when the model "
            "is called with input_ids."
        )


def _check_not_empty(words: Tensor, visual: Tensor) -> None:
    """Reject samples that have visual tokens, but no prompt token in the caller's mask."""
    empty = (visual.any(-1) & ~words.any(-1)).nonzero().flatten().tolist()
    if empty:
        raise InputError(
            f"prompt= marks no text token of sample {empty[0]}. Mark the tokens of the question, "
            "or omit prompt= to locate them by the chat template."
        )


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
