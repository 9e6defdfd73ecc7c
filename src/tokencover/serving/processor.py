"""What our processors add to vLLM's: get the prompt tokens, parse the request, keep K placeholders.

They run in the server's process. An invalid request fails here, alone, and never reaches the
engine.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from vllm.exceptions import VLLMValidationError
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import ImageProcessorItems

from tokencover.errors import InputError, TokenCoverError
from tokencover.families import FAMILIES, Family, Media
from tokencover.pruning import PromptLocator
from tokencover.serving.images import compute_fingerprint, split_images
from tokencover.serving.metrics import get_metrics
from tokencover.serving.selection import ImagePlan, SelectionPlan, decode_method
from tokencover.serving.settings import LIMIT_KEY, SETTINGS_KEY, ServingSettings, format_reason
from tokencover.serving.supported import ServedModel, get_served_model

PLAN_FIELD = "choice_plan"
"""The tensor with the plan of each image."""
IMAGE_FIELDS = ("pixel_values", "image_sizes", "image_grid_thw")
"""Tensors with the grid locations of visual tokens, by their names in transformers."""

_READING = threading.Lock()
"""Threads share the processor, but tokenizers are not thread-safe."""


class PrunedInfo:
    """A mixin for vLLM's processing info: images only, with their size before pruning."""

    ctx: Any

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Images; videos are not supported."""
        return {"image": None}

    def get_mm_max_tokens_per_item(
        self, seq_len: int, mm_counts: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Return the tokens of the largest image before pruning, to profile the encoder."""
        tokens: int = self.get_max_image_tokens()  # type: ignore[attr-defined]
        return {"image": tokens}

    def measure_image(self, size: Any, kwargs: Mapping[str, Any]) -> tuple[int, int]:
        """Return visual tokens of an image of this size, and the advance of positions."""
        tokens: int = self.get_num_image_tokens(  # type: ignore[attr-defined]
            image_width=size.width, image_height=size.height
        )
        return tokens, tokens

    @property
    def served_model(self) -> ServedModel:
        """The served model."""
        return get_served_model(self.ctx.model_config.hf_config.architectures)

    @property
    def family(self) -> Family:
        """Its model family."""
        return FAMILIES[self.served_model.family]


class PrunedProcessor:
    """A mixin for vLLM's processors; the names of its methods and their parameters are vLLM's."""

    info: Any

    @cached_property
    def settings(self) -> ServingSettings:
        """The server's settings."""
        return ServingSettings.read(getattr(self.info.get_hf_config(), SETTINGS_KEY, None))

    @cached_property
    def _prompt_reader(self) -> PromptLocator:
        return PromptLocator(self.info.get_hf_processor())

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """Process one request."""
        try:
            plan, rest = self._read_request(inputs)
            measured = self._measure(inputs, rest)
            self._check_length(inputs, measured)
            inputs = replace(inputs, hf_processor_mm_kwargs={**rest, SETTINGS_KEY: plan.text})
            result = super().apply(inputs, timing_ctx)  # type: ignore[misc]
        except TokenCoverError as error:
            get_metrics().rejected.inc()
            raise VLLMValidationError(format_reason(error), parameter=SETTINGS_KEY) from error
        self._count(plan, measured, result)
        return result

    def _read_request(self, inputs: Any) -> tuple[SelectionPlan, dict[str, Any]]:
        """Return the plan of a request, and its other settings."""
        rest = dict(inputs.hf_processor_mm_kwargs)
        requested = rest.pop(SETTINGS_KEY, None)
        if not self.settings.other_request_settings:
            self._validate_other_settings(rest, inputs.media_io_kwargs)
        max_length = self.info.ctx.model_config.max_model_len
        if len(inputs.prompt) > max_length:  # before anything reads all of it
            raise InputError(f"The prompt has {len(inputs.prompt)} tokens, more than {max_length}.")
        plan = self.settings.plan(requested, ())
        if self.settings.choose_by == "question" and decode_method(plan.method).reads_prompt:
            plan = replace(plan, prompt_ids=tuple(self.get_prompt_ids(inputs.prompt)))
        return plan, rest

    def _validate_other_settings(self, rest: Mapping[str, Any], reading: Mapping[str, Any]) -> None:
        """Raise an error for a request that changes how images are read."""
        if rest:
            raise InputError(
                f"Requests may only set {SETTINGS_KEY!r} in mm_processor_kwargs on this server, "
                f"not {', '.join(map(repr, rest))}."
            )
        own = self.info.ctx.model_config.get_multimodal_config().media_io_kwargs or {}
        if (reading.get("image") or {}) != (own.get("image") or {}):
            raise InputError("Requests may not set media_io_kwargs on this server.")

    def get_prompt_ids(self, prompt: Sequence[int]) -> list[int]:
        """Return the token ids of the prompt tokens, in order."""
        unknown = [each for each in prompt if not 0 <= each < self._num_ids]
        if unknown:
            raise InputError(f"Token id {unknown[0]} is out of vocabulary.")
        ids = torch.tensor([prompt], dtype=torch.int64)
        visual = torch.isin(ids, torch.tensor(self._visual_ids))
        with _READING:
            mask = self._prompt_reader.mask(ids, visual)
        prompt_ids: list[int] = ids[mask].tolist()
        return prompt_ids

    @cached_property
    def _num_ids(self) -> int:
        """Ids are below this; a tokenizer may have more ids than a model, or fewer."""
        vocabulary: int = self.info.ctx.model_config.get_vocab_size()
        return max(vocabulary, len(self.info.get_tokenizer()))

    @cached_property
    def _visual_ids(self) -> list[int]:
        config = self.info.get_hf_config()
        return [getattr(config, "image_token_id", None) or config.image_token_index]

    # ---- vLLM's steps, which get the settings without our entry -------------------------------

    def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Mapping[str, Any]) -> Any:
        plan, rest = split_plan(hf_kwargs)
        processed = super()._apply_hf_processor_main(  # type: ignore[misc]
            mm_items=mm_items, hf_kwargs=rest
        )
        if plan is not None and mm_items.get("image"):
            processed[PLAN_FIELD] = [each.to_tensor() for each in self._plan(plan, processed)]
        return processed

    def _plan(self, plan: SelectionPlan, processed: Mapping[str, Any]) -> list[ImagePlan]:
        images = {name: processed[name] for name in IMAGE_FIELDS if name in processed}
        layouts, _ = self.info.family.layouts(Media(self.info.get_hf_config(), images=images))
        fingerprints = [""] * len(layouts)
        if self.settings.vision_cache_mb and plan.prompt_ids:
            fingerprints = [compute_fingerprint(each.values()) for each in split_images(images)]
        return [
            plan.of_image(
                layout,
                advance=max(layout.shape) if self.info.served_model.several_axes else len(layout),
                fingerprint=fingerprint,
            )
            for layout, fingerprint in zip(layouts, fingerprints, strict=True)
        ]

    def _get_mm_fields_config(
        self, hf_inputs: Any, hf_processor_mm_kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        _, rest = split_plan(hf_processor_mm_kwargs)
        fields = super()._get_mm_fields_config(hf_inputs, rest)  # type: ignore[misc]
        return {**fields, PLAN_FIELD: MultiModalFieldConfig.batched("image", keep_on_cpu=True)}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any
    ) -> list[Any]:
        _, rest = split_plan(hf_processor_mm_kwargs)
        updates = super()._get_prompt_updates(  # type: ignore[misc]
            mm_items=mm_items, hf_processor_mm_kwargs=rest, out_mm_kwargs=out_mm_kwargs
        )
        return [
            shorten(update, out_mm_kwargs) if update.modality == "image" else update
            for update in updates
        ]

    def _measure(self, inputs: Any, rest: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Return tokens and advance of each image of a request; see `PrunedInfo.measure_image`."""
        items = inputs.mm_data_items.get("image")
        if not items:
            return []
        if not isinstance(items, ImageProcessorItems):
            raise InputError("Images must be sent as images, not as embeddings.")
        if any(items.get(index) is None for index in range(len(items))):
            raise InputError("An image was sent without its data. Send the data as well.")
        sizes = [items.get_image_size(index) for index in range(len(items))]
        return [self.info.measure_image(size, rest) for size in sizes]

    def _check_length(self, inputs: Any, measured: Sequence[tuple[int, int]]) -> None:
        """Raise an error for prompts that end after the model's last position."""
        limit = getattr(self.info.get_hf_config(), LIMIT_KEY, None)
        end = len(inputs.prompt) - len(measured) + sum(advance for _, advance in measured)
        if limit is not None and end > limit:
            raise InputError(
                f"Kept tokens retain their positions, so this prompt ends at position {end}. The "
                f"model supports {limit}. Send fewer images or less text, or start the server with "
                "--positions reindex."
            )

    def _count(self, plan: SelectionPlan, measured: Sequence[tuple[int, int]], result: Any) -> None:
        """Update the metrics."""
        metrics = get_metrics()
        ranges = result["mm_placeholders"].get("image", [])
        for (before, _), kept in zip(measured, ranges, strict=True):
            metrics.images.labels(decode_method(plan.method).name).inc()
            metrics.tokens_before.inc(before)
            metrics.tokens_kept.inc(kept.length)
            metrics.tokens_saved.inc(before - kept.length)


def split_plan(settings: Mapping[str, Any]) -> tuple[SelectionPlan | None, dict[str, Any]]:
    """Return our entry of a processor's settings, and the remaining ones."""
    rest = dict(settings)
    text = rest.pop(SETTINGS_KEY, None)
    return (None if text is None else SelectionPlan.read(text)), rest


def shorten(update: Any, out_mm_kwargs: Any) -> Any:
    """Return the same prompt update with one placeholder per kept token."""
    whole = update.replacement

    def replace_short(item_idx: int) -> list[int]:
        plan = ImagePlan.from_tensor(out_mm_kwargs["image"][item_idx][PLAN_FIELD].data)
        tokens: list[int] = whole(item_idx)
        if len(tokens) != plan.tokens:
            raise InputError(
                f"Cannot prune this model: vLLM counts {len(tokens)} visual tokens of an image, "
                f"its layout has {plan.tokens}."
            )
        return tokens[: plan.kept]

    return replace(update, replacement=replace_short)
