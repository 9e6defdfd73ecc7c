"""Qwen3-VL: interleaved multimodal rotary positions, DeepStack, timestamps between frames."""

import torch
from transformers import PreTrainedModel, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from . import qwen2_vl
from .entry import Medium, ZooEntry
from .layout import Grid
from .qwen_media import layouts, media, pack, vision_config
from .vocabulary import IMAGE, TIMESTAMP, VIDEO, VISION_END, VISION_START, Ids, tagged_chat
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
        depth=4,
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        num_position_embeddings=36,
        deepstack_visual_indexes=[0, 1, 2],
    )
    config = Qwen3VLConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(Qwen3VLForConditionalGeneration, config, attn_implementation, dtype)


def write(medium: Medium) -> Ids:
    """Write an image as Qwen2-VL does, a video frame by frame with a timestamp before each."""
    if not medium.video or not isinstance(medium.layout, Grid):
        return qwen2_vl.write(medium)
    frames, rows, columns = medium.layout
    frame = [TIMESTAMP, VISION_START, *[VIDEO] * (rows * columns), VISION_END]
    return frame * frames


ENTRY = ZooEntry(
    name="qwen3_vl",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=qwen2_vl.ENTRY.kinds,
    video_token_id=VIDEO,
    deepstack=True,
)
