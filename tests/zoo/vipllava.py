"""ViP-LLaVA: LLaVA-1.5 with features of several layers of its vision encoder."""

from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel, VipLlavaConfig, VipLlavaForConditionalGeneration

from . import llava
from .vision_encoders import clip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config: Any = VipLlavaConfig(
        vision_config=clip_encoder(llava.SIDE),
        text_config=text_config(layers, model_type="llama"),
        image_token_index=IMAGE,
        image_seq_length=llava.GRID.tokens,
    )
    config.vision_feature_layers = [-2, -1]  # the name of both: before transformers 5.23, and since
    return seeded(VipLlavaForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    llava.ENTRY,
    name="vipllava",
    build=build,
    kinds=("single", "ragged", "text_only", "mixed"),
    alike="llava",
)
