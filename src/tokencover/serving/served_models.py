"""vLLM's models with pruning; vLLM imports this when one of them is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from vllm.model_executor.models import llava, llava_next, qwen2_5_vl, qwen2_vl, qwen3_vl
from vllm.multimodal import MULTIMODAL_REGISTRY

from tokencover.errors import InputError
from tokencover.serving.pruned_model import PrunedModel
from tokencover.serving.pruned_processor import PrunedInfo, PrunedProcessor

# ---- LLaVA -----------------------------------------------------------------------------------


class PrunedLlavaInfo(PrunedInfo, llava.LlavaProcessingInfo):
    """LLaVA-1.5, with a CLIP or SigLIP tower."""

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        tower = ctx.get_hf_config().vision_config.model_type
        if tower == "pixtral":
            raise InputError("LLaVA with a Pixtral tower cannot be served with pruning yet.")


class PrunedLlavaProcessor(PrunedProcessor, llava.LlavaMultiModalProcessor):
    """See `PrunedProcessor`."""


class LlavaWeights:
    """Mixed into the LLaVAs: reads checkpoints of transformers old and new."""

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load them; newer checkpoints leave out a level of names in the CLIP tower."""
        found: set[str] = super().load_weights(name_as_before(weights))  # type: ignore[misc]
        return found


def name_as_before(weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """The names that vLLM knows: ``vision_tower.vision_model.encoder``."""
    tower, level = "vision_tower.", "vision_model."
    for name, tensor in weights:
        before, found, after = name.partition(tower)
        if found and not after.startswith(level):
            yield f"{before}{tower}{level}{after}", tensor
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
    """What the three Qwens share."""

    def measure_picture(self, size: Any, kwargs: Mapping[str, Any]) -> tuple[int, int]:
        """Their pictures are scaled first; positions go on by the longer side of the grid."""
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
        """Those of Qwen2-VL: what Qwen3-VL adds is for videos, which are not taken here."""
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
    """Qwen3-VL, whose rows hold its DeepStack levels too."""
