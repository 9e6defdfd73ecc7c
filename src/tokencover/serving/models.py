"""vLLM's models with pruning; vLLM imports this when one of them is requested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from vllm.model_executor.models import llava, llava_next, qwen2_5_vl, qwen2_vl, qwen3_vl
from vllm.multimodal import MULTIMODAL_REGISTRY

from tokencover.errors import InputError
from tokencover.serving.model import PrunedModel
from tokencover.serving.processor import PrunedInfo, PrunedProcessor

# ---- LLaVA -----------------------------------------------------------------------------------


class PrunedLlavaInfo(PrunedInfo, llava.LlavaProcessingInfo):
    """LLaVA-1.5, with a CLIP or SigLIP vision encoder."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        if ctx.get_hf_config().vision_config.model_type == "pixtral":
            raise InputError("Cannot serve LLaVA with a Pixtral vision encoder with pruning.")


class PrunedLlavaProcessor(PrunedProcessor, llava.LlavaMultiModalProcessor):
    """See `PrunedProcessor`."""


class LlavaWeights:
    """A mixin for LLaVA: reads checkpoints of older and newer transformers."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load weights; newer checkpoints omit a level of names in the CLIP encoder."""
        loaded: set[str] = super().load_weights(restore_names(weights))  # type: ignore[misc]
        return loaded


def restore_names(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Return the names that vLLM expects: ``vision_tower.vision_model.encoder``."""
    encoder, level = "vision_tower.", "vision_model."
    for name, tensor in weights:
        before, found, after = name.partition(encoder)
        if found and not after.startswith(level):
            yield f"{before}{encoder}{level}{after}", tensor
        else:
            yield name, tensor


@MULTIMODAL_REGISTRY.register_processor(
    PrunedLlavaProcessor, info=PrunedLlavaInfo, dummy_inputs=llava.LlavaDummyInputsBuilder
)
class TokenCoverLlavaForConditionalGeneration(
    PrunedModel, LlavaWeights, llava.LlavaForConditionalGeneration
):
    """LLaVA-1.5."""


class PrunedLlavaNextInfo(PrunedInfo, llava_next.LlavaNextProcessingInfo):
    """See `PrunedInfo`."""


class PrunedLlavaNextProcessor(PrunedProcessor, llava_next.LlavaNextMultiModalProcessor):
    """See `PrunedProcessor`."""


@MULTIMODAL_REGISTRY.register_processor(
    PrunedLlavaNextProcessor, info=PrunedLlavaNextInfo, dummy_inputs=llava.LlavaDummyInputsBuilder
)
class TokenCoverLlavaNextForConditionalGeneration(
    PrunedModel, LlavaWeights, llava_next.LlavaNextForConditionalGeneration
):
    """LLaVA-Next."""


# ---- Qwen ------------------------------------------------------------------------------------


class PrunedQwenInfo(PrunedInfo):
    """What the three Qwen families share."""

    def measure_image(self, size: Any, kwargs: Mapping[str, Any]) -> tuple[int, int]:
        """Images are scaled first; positions advance by the longer side of the grid."""
        scaled, tokens = self._get_vision_info(  # type: ignore[attr-defined]
            image_width=size.width,
            image_height=size.height,
            image_processor=self.get_image_processor(**kwargs),  # type: ignore[attr-defined]
            mm_kwargs=kwargs,
        )
        vision = self.ctx.get_hf_config().vision_config
        side = vision.patch_size * vision.spatial_merge_size
        return tokens, max(scaled.height, scaled.width) // side


class PrunedQwen2VLInfo(PrunedQwenInfo, qwen2_vl.Qwen2VLProcessingInfo):
    """See `PrunedInfo`."""


class PrunedQwen2VLProcessor(PrunedProcessor, qwen2_vl.Qwen2VLMultiModalProcessor):
    """See `PrunedProcessor`."""


@MULTIMODAL_REGISTRY.register_processor(
    PrunedQwen2VLProcessor,
    info=PrunedQwen2VLInfo,
    dummy_inputs=qwen2_vl.Qwen2VLDummyInputsBuilder,
)
class TokenCoverQwen2VLForConditionalGeneration(
    PrunedModel, qwen2_vl.Qwen2VLForConditionalGeneration
):
    """Qwen2-VL."""


class PrunedQwen25VLInfo(PrunedQwenInfo, qwen2_5_vl.Qwen2_5_VLProcessingInfo):
    """See `PrunedInfo`."""


class PrunedQwen25VLProcessor(PrunedProcessor, qwen2_5_vl.Qwen2_5_VLMultiModalProcessor):
    """See `PrunedProcessor`."""


@MULTIMODAL_REGISTRY.register_processor(
    PrunedQwen25VLProcessor,
    info=PrunedQwen25VLInfo,
    dummy_inputs=qwen2_5_vl.Qwen2_5_VLDummyInputsBuilder,
)
class TokenCoverQwen2_5_VLForConditionalGeneration(  # noqa: N801
    PrunedModel, qwen2_5_vl.Qwen2_5_VLForConditionalGeneration
):
    """Qwen2.5-VL."""


class PrunedQwen3VLInfo(PrunedQwenInfo, qwen3_vl.Qwen3VLProcessingInfo):
    """See `PrunedInfo`."""

    def get_supported_mm_processor_kwargs(self) -> Any:
        """Return those of Qwen2-VL: Qwen3-VL adds options for videos, which are not supported."""
        return qwen2_vl.Qwen2VLProcessingInfo.get_supported_mm_processor_kwargs(self)


class PrunedQwen3VLProcessor(PrunedProcessor, qwen3_vl.Qwen3VLMultiModalProcessor):
    """See `PrunedProcessor`."""


@MULTIMODAL_REGISTRY.register_processor(
    PrunedQwen3VLProcessor,
    info=PrunedQwen3VLInfo,
    dummy_inputs=qwen3_vl.Qwen3VLDummyInputsBuilder,
)
class TokenCoverQwen3VLForConditionalGeneration(
    PrunedModel, qwen3_vl.Qwen3VLForConditionalGeneration
):
    """Qwen3-VL, whose rows also hold the DeepStack levels."""
