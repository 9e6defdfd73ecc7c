"""DeepSeek-VL: one SigLIP grid for each image."""

import torch
from transformers import DeepseekVLConfig, DeepseekVLForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config

SIDE = 4


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = DeepseekVLConfig(
        vision_config=siglip_encoder(SIDE),
        text_config=text_config(layers, model_type="llama"),
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    return seeded(DeepseekVLForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = single_grids("deepseek_vl", build, SIDE, PATCH)
