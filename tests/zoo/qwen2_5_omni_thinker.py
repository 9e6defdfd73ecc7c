"""Qwen2.5-Omni's thinker: Qwen2.5-VL with sounds beside images."""

from functools import partial

import torch
from transformers import (
    PreTrainedModel,
    Qwen2_5OmniThinkerConfig,
    Qwen2_5OmniThinkerForConditionalGeneration,
)

from .entry import ZooEntry
from .qwen2_5_vl import WINDOW
from .qwen_audio import AUDIO, MARKS, audio_config, keep_silent, pack, write
from .qwen_media import layouts, media, vision_config
from .vocabulary import IMAGE, VIDEO, tagged_chat
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
    vision = vision_config(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        window_size=WINDOW,
        fullatt_block_indexes=[1],
    )
    config = Qwen2_5OmniThinkerConfig(
        vision_config=vision,
        audio_config=audio_config(output_dim=HIDDEN),
        text_config=text,
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        audio_token_index=AUDIO,
        **MARKS,
    )
    model = seeded(Qwen2_5OmniThinkerForConditionalGeneration, config, attn_implementation, dtype)
    return keep_silent(model)


ENTRY = ZooEntry(
    name="qwen2_5_omni_thinker",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=partial(pack, frames_per_token=4),
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    video_token_id=VIDEO,
    alike="qwen2_5_vl",
)
