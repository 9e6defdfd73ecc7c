"""Qwen3-VL with experts: the same images and DeepStack."""

import torch
from transformers import PreTrainedModel, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

from . import qwen3_vl
from .entry import ZooEntry
from .qwen_media import layouts, media, pack, vision_config
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import HIDDEN, seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
    )
    vision = vision_config(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        num_position_embeddings=36,
        deepstack_visual_indexes=[0, 1],
    )
    config = Qwen3VLMoeConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(Qwen3VLMoeForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = ZooEntry(
    name="qwen3_vl_moe",
    build=build,
    chat=tagged_chat,
    write=qwen3_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    video_token_id=VIDEO,
    deepstack=True,
    alike="qwen3_vl",
)
