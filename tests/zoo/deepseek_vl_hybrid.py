"""DeepSeek-VL with two vision encoders: each image comes twice, the second time larger."""

import torch
from transformers import (
    DeepseekVLHybridConfig,
    DeepseekVLHybridForConditionalGeneration,
    PreTrainedModel,
)

from .entry import Inputs, Medium
from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config

SIDE = 3
LARGER = 2


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    sam = {
        "model_type": "sam_vision_model",
        "hidden_size": 16,
        "output_channels": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "mlp_dim": 24,
        "image_size": SIDE * PATCH * LARGER,
        "patch_size": PATCH * LARGER // 4,
        "window_size": 5,
        "global_attn_indexes": [1],
        "num_pos_feats": 8,
    }
    config = DeepseekVLHybridConfig(
        vision_config=siglip_encoder(SIDE),
        high_res_vision_config=sam,
        text_config=text_config(layers, model_type="llama"),
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    return seeded(DeepseekVLHybridForConditionalGeneration, config, attn_implementation, dtype)


def enlarge(media: list[Medium]) -> Inputs:
    pixels = torch.cat([medium.pixels for medium in media])
    larger = pixels.repeat_interleave(LARGER, -1).repeat_interleave(LARGER, -2)
    return {"high_res_pixel_values": larger}


ENTRY = single_grids("deepseek_vl_hybrid", build, SIDE, PATCH, enlarge)
