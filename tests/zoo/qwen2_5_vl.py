"""Qwen2.5-VL: Qwen2-VL with a windowed vision encoder and frames placed by their time."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

from . import qwen2_vl, qwen_media
from .entry import Inputs, Sample, ZooEntry
from .qwen_media import MERGE, layouts, media, vision_config
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import HIDDEN, seeded, text_config

WINDOW = 2 * MERGE * PATCH
SECONDS_PER_FRAME = 0.5


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [4, 2, 2],
    }
    vision = vision_config(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        window_size=WINDOW,
        fullatt_block_indexes=[1],
        tokens_per_second=4,
    )
    config = Qwen2_5_VLConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(Qwen2_5_VLForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = qwen_media.pack(samples, text)
    if "video_grid_thw" in packed:
        videos = len(packed["video_grid_thw"])
        packed["second_per_grid_ts"] = torch.full((videos,), SECONDS_PER_FRAME)
    return packed


ENTRY = ZooEntry(
    name="qwen2_5_vl",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=qwen2_vl.ENTRY.kinds,
    video_token_id=VIDEO,
)
