"""What our processors do beside vLLM's: find the words, read the request, keep K placeholders.

They run in the server's process. Whatever is wrong with a request is found here, where it fails
that request alone; the engine is never asked.
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
from tokencover.serving.architectures import ServedModel, find_served_model
from tokencover.serving.choice_plan import ChoicePlan, PicturePlan, load_method
from tokencover.serving.picture_tensors import split_pictures
from tokencover.serving.serving_metrics import get_metrics
from tokencover.serving.settings import LIMIT_KEY, SETTINGS_KEY, ServingSettings, write_reason
from tokencover.serving.tower_memory import fingerprint

PLAN_FIELD = "choice_plan"
"""The tensor of each picture that holds its plan."""
PICTURE_FIELDS = ("pixel_values", "image_sizes", "image_grid_thw")
"""The tensors of pictures that say where tokens lie, by the names that transformers gives them."""

_READING = threading.Lock()
"""Threads share the processor, and a tokenizer is not made for that."""


class PrunedInfo:
    """Mixed into vLLM's processing info: pictures only, and as large as they are to the tower."""

    ctx: Any

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Pictures; videos are refused."""
        return {"image": None}

    def get_mm_max_tokens_per_item(
        self, seq_len: int, mm_counts: Mapping[str, int]
    ) -> Mapping[str, int]:
        """The largest picture before pruning: that is what the vision tower has to hold."""
        found: int = self.get_max_image_tokens()  # type: ignore[attr-defined]
        return {"image": found}

    def measure_picture(self, size: Any, kwargs: Mapping[str, Any]) -> tuple[int, int]:
        """Visual tokens of a picture of this size, and how far positions go on over it."""
        tokens: int = self.get_num_image_tokens(  # type: ignore[attr-defined]
            image_width=size.width, image_height=size.height
        )
        return tokens, tokens

    @property
    def served_model(self) -> ServedModel:
        """Which of our models this is."""
        return find_served_model(self.ctx.model_config.hf_config.architectures)

    @property
    def family(self) -> Family:
        """Where its tokens lie."""
        return FAMILIES[self.served_model.family]


class PrunedProcessor:
    """Mixed into vLLM's processors; the names of its methods and their parameters are vLLM's."""

    info: Any

    @cached_property
    def settings(self) -> ServingSettings:
        """Those of the server."""
        return ServingSettings.read(getattr(self.info.get_hf_config(), SETTINGS_KEY, None))

    @cached_property
    def _words(self) -> PromptLocator:
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
            get_metrics().refused.inc()
            raise VLLMValidationError(write_reason(error), parameter=SETTINGS_KEY) from error
        self._count(plan, measured, result)
        return result

    def _read_request(self, inputs: Any) -> tuple[ChoicePlan, dict[str, Any]]:
        """What is to be done, and the request's other settings."""
        rest = dict(inputs.hf_processor_mm_kwargs)
        asked = rest.pop(SETTINGS_KEY, None)
        if not self.settings.other_request_settings:
            self._refuse_others(rest, inputs.media_io_kwargs)
        longest = self.info.ctx.model_config.max_model_len
        if len(inputs.prompt) > longest:  # before anything looks through all of it
            raise InputError(f"the prompt has {len(inputs.prompt)} tokens, more than {longest}.")
        plan = self.settings.plan(asked, ())
        if self.settings.choose_by == "question" and load_method(plan.method).reads_prompt:
            plan = replace(plan, words=tuple(self.find_words(inputs.prompt)))
        return plan, rest

    def _refuse_others(self, rest: Mapping[str, Any], reading: Mapping[str, Any]) -> None:
        """A server that takes budgets does not take changes to how pictures are read."""
        if rest:
            raise InputError(
                f"requests may set {SETTINGS_KEY!r} alone in mm_processor_kwargs here, not "
                f"{', '.join(map(repr, rest))}."
            )
        own = self.info.ctx.model_config.get_multimodal_config().media_io_kwargs or {}
        if (reading.get("image") or {}) != (own.get("image") or {}):
            raise InputError("requests may not set media_io_kwargs here.")

    def find_words(self, prompt: Sequence[int]) -> list[int]:
        """Token ids of the user's own words, in order."""
        odd = [each for each in prompt if not 0 <= each < self._known_ids]
        if odd:
            raise InputError(f"token id {odd[0]} is out of vocabulary.")
        ids = torch.tensor([prompt], dtype=torch.int64)
        visual = torch.isin(ids, torch.tensor(self._visual_ids))
        with _READING:
            mask = self._words.mask(ids, visual)
        found: list[int] = ids[mask].tolist()
        return found

    @cached_property
    def _known_ids(self) -> int:
        """Ids lie below; a tokenizer may know more of them than a model, or less."""
        vocabulary: int = self.info.ctx.model_config.get_vocab_size()
        return max(vocabulary, len(self.info.get_tokenizer()))

    @cached_property
    def _visual_ids(self) -> list[int]:
        config = self.info.get_hf_config()
        return [getattr(config, "image_token_id", None) or config.image_token_index]

    # ---- vLLM's steps, with our entry taken out of the settings before they see it ------------

    def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Mapping[str, Any]) -> Any:
        plan, rest = take_plan(hf_kwargs)
        processed = super()._apply_hf_processor_main(  # type: ignore[misc]
            mm_items=mm_items, hf_kwargs=rest
        )
        if plan is not None and mm_items.get("image"):
            processed[PLAN_FIELD] = [each.to_tensor() for each in self._plan(plan, processed)]
        return processed

    def _plan(self, plan: ChoicePlan, processed: Mapping[str, Any]) -> list[PicturePlan]:
        images = {name: processed[name] for name in PICTURE_FIELDS if name in processed}
        layouts, _ = self.info.family.layouts(Media(self.info.get_hf_config(), images=images))
        names = [""] * len(layouts)
        if self.settings.tower_megabytes and plan.words:
            names = [fingerprint(each.values()) for each in split_pictures(images)]
        return [
            plan.of_picture(
                layout,
                advance=max(layout.shape) if self.info.served_model.several_axes else len(layout),
                fingerprint=name,
            )
            for layout, name in zip(layouts, names, strict=True)
        ]

    def _get_mm_fields_config(
        self, hf_inputs: Any, hf_processor_mm_kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        _, rest = take_plan(hf_processor_mm_kwargs)
        fields = super()._get_mm_fields_config(hf_inputs, rest)  # type: ignore[misc]
        return {**fields, PLAN_FIELD: MultiModalFieldConfig.batched("image", keep_on_cpu=True)}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any
    ) -> list[Any]:
        _, rest = take_plan(hf_processor_mm_kwargs)
        updates = super()._get_prompt_updates(  # type: ignore[misc]
            mm_items=mm_items, hf_processor_mm_kwargs=rest, out_mm_kwargs=out_mm_kwargs
        )
        return [
            shorten(update, out_mm_kwargs) if update.modality == "image" else update
            for update in updates
        ]

    def _measure(self, inputs: Any, rest: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Tokens and advance of each picture of a request; see `PrunedInfo.measure_picture`."""
        items = inputs.mm_data_items.get("image")
        if not items:
            return []
        if not isinstance(items, ImageProcessorItems):
            raise InputError("pictures must come as pictures, not as embeddings.")
        if any(items.get(place) is None for place in range(len(items))):
            raise InputError("a picture came as a name alone: send the picture too.")
        sizes = [items.get_image_size(place) for place in range(len(items))]
        return [self.info.measure_picture(size, rest) for size in sizes]

    def _check_length(self, inputs: Any, measured: Sequence[tuple[int, int]]) -> None:
        """Refuse prompts that end beyond the positions that the model was made for."""
        limit = getattr(self.info.get_hf_config(), LIMIT_KEY, None)
        end = len(inputs.prompt) - len(measured) + sum(advance for _, advance in measured)
        if limit is not None and end > limit:
            raise InputError(
                f"kept tokens stay where they were, so this prompt ends at position {end}; the "
                f"model was made for {limit}. Send fewer pictures or less text; the server can "
                "number tokens anew, with --positions reindex."
            )

    def _count(self, plan: ChoicePlan, measured: Sequence[tuple[int, int]], result: Any) -> None:
        """Tell Prometheus."""
        metrics = get_metrics()
        ranges = result["mm_placeholders"].get("image", [])
        for (before, _), kept in zip(measured, ranges, strict=True):
            metrics.pictures.labels(load_method(plan.method).name).inc()
            metrics.tokens_before.inc(before)
            metrics.tokens_kept.inc(kept.length)
            metrics.tokens_saved.inc(before - kept.length)


def take_plan(settings: Mapping[str, Any]) -> tuple[ChoicePlan | None, dict[str, Any]]:
    """Our entry of a processor's settings, and the others."""
    rest = dict(settings)
    text = rest.pop(SETTINGS_KEY, None)
    return (None if text is None else ChoicePlan.read(text)), rest


def shorten(update: Any, out_mm_kwargs: Any) -> Any:
    """The same update of a prompt, with a placeholder for each token that is kept."""
    whole = update.replacement

    def replace_short(item_idx: int) -> list[int]:
        plan = PicturePlan.from_tensor(out_mm_kwargs["image"][item_idx][PLAN_FIELD].data)
        tokens: list[int] = whole(item_idx)
        if len(tokens) != plan.tokens:
            raise InputError(
                f"vLLM counts {len(tokens)} visual tokens of a picture for which the layout has "
                f"{plan.tokens}; this model cannot be pruned."
            )
        return tokens[: plan.kept]

    return replace(update, replacement=replace_short)
