"""Cosmos 3 Omni, its reasoner: the parts of Qwen3-VL."""

from dataclasses import replace

import torch
from transformers import Cosmos3OmniConfig, Cosmos3OmniForConditionalGeneration, PreTrainedModel

from . import qwen3_vl
from .qwen_media import vision_config
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START
from .weights import HIDDEN, seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [4, 2, 2],
        "mrope_interleaved": True,
    }
    vision = vision_config(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        num_position_embeddings=36,
        deepstack_visual_indexes=[0, 1],
    )
    config = Cosmos3OmniConfig(
        vision_config={"model_type": "qwen3_vl_vision", **vision},
        text_config={"model_type": "qwen3_vl_text", **text},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(Cosmos3OmniForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    qwen3_vl.ENTRY,
    name="cosmos3_omni",
    build=build,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    alike="qwen3_vl",
)
