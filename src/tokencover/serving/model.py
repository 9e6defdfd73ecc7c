"""What our models add to vLLM's: select tokens after the vision encoder, restore positions.

They run in the engine, where an error would end all requests: if a selection fails, evenly spaced
tokens are kept, and the failure is counted and logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from tokencover.families import FAMILIES, Layout, Media
from tokencover.serving.images import (
    PlacedImage,
    PositionOffsets,
    VisionCache,
    compute_text_positions,
    join_images,
    pack_offsets,
    split_batches,
    split_images,
)
from tokencover.serving.metrics import get_metrics
from tokencover.serving.processor import PLAN_FIELD
from tokencover.serving.selection import (
    ImagePlan,
    Selection,
    decode_method,
    select_evenly,
    select_tokens,
)
from tokencover.serving.settings import SETTINGS_KEY, ServingSettings
from tokencover.serving.supported import get_served_model

LOGGER = logging.getLogger("vllm.tokencover")
MEGABYTE = 2**20


class PrunedModel:
    """A mixin for vLLM's models; the names of its methods and their parameters are vLLM's."""

    supports_mrope: ClassVar[bool] = True
    config: Any

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        config = vllm_config.model_config.hf_config
        settings = ServingSettings.read(getattr(config, SETTINGS_KEY, None))
        self._served = get_served_model(config.architectures)
        self._family = FAMILIES[self._served.family]
        self._width = vllm_config.model_config.get_inputs_embeds_size()
        self._cache = VisionCache(settings.vision_cache_mb * MEGABYTE)
        get_metrics()  # creates their files now: a later error would end the engine
        self._max_batched_tokens = vllm_config.scheduler_config.max_num_batched_tokens
        self._offsets: PositionOffsets | None = None
        if settings.method.positions == "original":
            axes = (1, 2) if self._served.several_axes else (0,)
            self._offsets = PositionOffsets(axes, self._max_batched_tokens)

    # ---- images -------------------------------------------------------------------------------

    def embed_multimodal(self, **kwargs: Any) -> Any:
        """Return the kept tokens of each image, with their offsets in extra columns."""
        plans = kwargs.pop(PLAN_FIELD, None)
        if plans is None:
            return super().embed_multimodal(**kwargs)  # type: ignore[misc]
        images = split_images(kwargs)
        layouts, _ = self._family.layouts(Media(self.config, images=kwargs))
        image_plans = [ImagePlan.from_tensor(each) for each in plans]
        outputs = self._encode(images, image_plans)
        return [self._prune(*each) for each in zip(outputs, image_plans, layouts, strict=True)]

    def _encode(
        self, images: Sequence[Mapping[str, Tensor]], plans: Sequence[ImagePlan]
    ) -> list[Tensor]:
        """Return the output of vision encoder and projector for each image.

        The scheduler fills a step by kept tokens, so a step has more images than the encoder is
        profiled for. It gets batches no larger than without pruning.
        """
        known: list[Tensor | None] = [self._cache.get(plan.fingerprint) for plan in plans]
        first: dict[str, int] = {}
        for index, plan in enumerate(plans):
            if known[index] is None:
                # Equal images are encoded once; one without a fingerprint equals no other.
                first.setdefault(plan.fingerprint or str(index), index)
        missing = list(first.values())
        get_metrics().reused.inc(len(plans) - len(missing))
        sizes = [plans[index].tokens for index in missing]
        for batch in split_batches(sizes, self._max_batched_tokens):
            indices = [missing[each] for each in batch]
            joined = join_images([images[index] for index in indices])
            outputs = super().embed_multimodal(**joined)  # type: ignore[misc]
            for index, output in zip(indices, outputs, strict=True):
                known[index] = output
                self._cache.put(plans[index].fingerprint, output)
        return [
            known[first[plan.fingerprint or str(index)]] if output is None else output  # type: ignore[misc]
            for index, (plan, output) in enumerate(zip(plans, known, strict=True))
        ]

    def _prune(self, rows: Tensor, plan: ImagePlan, layout: Layout) -> Tensor:
        """Keep rows; only their first columns are the decoder's input, others are for DeepStack."""
        begin = time.perf_counter()
        selection = self._select(rows[:, : self._width], plan, layout)
        levels = rows[selection.kept, self._width :]
        kept = torch.cat([selection.hidden_states, levels], dim=-1)
        get_metrics().selection.observe(time.perf_counter() - begin)
        if self._offsets is None:
            return kept
        offsets = self.compute_offsets(selection.kept, layout)
        return torch.cat([kept, pack_offsets(offsets, kept)], dim=-1)

    def _select(self, hidden_states: Tensor, plan: ImagePlan, layout: Layout) -> Selection:
        try:
            method = decode_method(plan.method)
            prompt = self._embed_prompt(plan.prompt_ids, hidden_states)
            selection = select_tokens(method, hidden_states, prompt, layout)
            if len(selection.kept) == plan.kept:
                self._observe(selection.details)
                return selection
            LOGGER.error("%s kept %d of %d tokens", method.name, len(selection.kept), plan.kept)
        except Exception:  # an error here would end the engine, and every request with it
            LOGGER.exception("selection failed; keeping %d evenly spaced tokens", plan.kept)
        get_metrics().failed.inc()
        return select_evenly(hidden_states, plan.kept)

    def _observe(self, details: Mapping[str, Any]) -> None:
        if details.get("rule") == "coupling" and (eta := details.get("coupling")) is not None:
            get_metrics().coupling.observe(eta)

    def _embed_prompt(self, prompt_ids: Sequence[int], hidden_states: Tensor) -> Tensor:
        if not prompt_ids:
            return hidden_states[:0]
        ids = torch.tensor(prompt_ids, device=hidden_states.device)
        embedded: Tensor = self.get_language_model().embed_input_ids(ids)  # type: ignore[attr-defined]
        return embedded

    # ---- positions ----------------------------------------------------------------------------

    def compute_offsets(self, kept: Tensor, layout: Layout) -> Tensor:
        """Return ``(k, axes)``, the offsets of kept tokens from the position of their image."""
        if not self._served.several_axes:
            return kept.unsqueeze(-1)
        index = kept.cpu()
        return torch.stack([layout.row[index], layout.column[index]], dim=-1).to(kept.device)

    def get_mrope_input_positions(
        self, input_tokens: Sequence[int], mm_features: Iterable[Any]
    ) -> tuple[Tensor, int]:
        """Compute positions of a prompt as if no image was pruned."""
        images = []
        for feature in sorted(mm_features, key=lambda each: each.mm_position.offset):
            plan = ImagePlan.from_tensor(feature.data[PLAN_FIELD].data)
            images.append(PlacedImage(feature.mm_position.offset, plan.kept, plan.advance))
        return compute_text_positions(len(input_tokens), images)

    def embed_input_ids(
        self,
        input_ids: Tensor,
        multimodal_embeddings: Any = None,
        *,
        is_multimodal: Tensor | None = None,
    ) -> Tensor:
        """Embed the tokens of a step; offsets of kept tokens are recorded for `forward`."""
        if self._offsets is not None:
            given = [] if multimodal_embeddings is None else list(multimodal_embeddings)
            stripped = self._offsets.strip(given, is_multimodal)
            multimodal_embeddings = None if multimodal_embeddings is None else stripped
        embedded: Tensor = super().embed_input_ids(  # type: ignore[misc]
            input_ids, multimodal_embeddings, is_multimodal=is_multimodal
        )
        return embedded

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the decoder on a step, with kept tokens where they were."""
        if self._offsets is not None and positions.ndim > 1:
            positions = self._offsets.add_to(positions)
            if not self._served.several_axes:
                positions = positions[0]
        return super().forward(  # type: ignore[misc]
            input_ids, positions, intermediate_tensors, inputs_embeds, **kwargs
        )
