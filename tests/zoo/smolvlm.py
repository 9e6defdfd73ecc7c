"""SmolVLM: the same inputs as Idefics3, in classes of its own."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel, SmolVLMConfig, SmolVLMForConditionalGeneration

from . import idefics3
from .vision_encoders import siglip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = SmolVLMConfig(
        vision_config=siglip_encoder(2 * idefics3.SIDE, "smolvlm_vision"),
        text_config=text_config(layers, model_type="llama"),
        image_token_id=IMAGE,
        scale_factor=2,
    )
    return seeded(SmolVLMForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(idefics3.ENTRY, name="smolvlm", build=build)
