"""Qwen2-VL: any resolution, multimodal rotary positions, images and video."""

import torch
from transformers import PreTrainedModel, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from .entry import Medium, ZooEntry
from .qwen_media import layouts, media, pack, vision_config
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, Ids, tagged_chat
from .weights import HIDDEN, seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [4, 2, 2],
    }
    config = Qwen2VLConfig(
        vision_config=vision_config(embed_dim=32, hidden_size=HIDDEN, mlp_ratio=2),
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(Qwen2VLForConditionalGeneration, config, attn_implementation, dtype)


def write(medium: Medium) -> Ids:
    token = VIDEO if medium.video else IMAGE
    return [VISION_START, *[token] * medium.layout.tokens, VISION_END]


ENTRY = ZooEntry(
    name="qwen2_vl",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed", "video", "image_and_video"),
    video_token_id=VIDEO,
)
