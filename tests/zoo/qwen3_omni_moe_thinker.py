"""Qwen3-Omni's thinker: Qwen3-VL with experts, and with sounds beside images."""

from functools import partial

import torch
from transformers import (
    PreTrainedModel,
    Qwen3OmniMoeThinkerConfig,
    Qwen3OmniMoeThinkerForConditionalGeneration,
)

from .entry import ZooEntry
from .qwen_audio import AUDIO, MARKS, audio_config, keep_silent, pack, write
from .qwen_media import layouts, media, vision_config
from .vocabulary import IMAGE, VIDEO, tagged_chat
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
    config = Qwen3OmniMoeThinkerConfig(
        vision_config=vision,
        audio_config=audio_config(output_dim=HIDDEN, downsample_hidden_size=8),
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        audio_token_id=AUDIO,
        **MARKS,
    )
    model = seeded(Qwen3OmniMoeThinkerForConditionalGeneration, config, attn_implementation, dtype)
    return keep_silent(model)


ENTRY = ZooEntry(
    name="qwen3_omni_moe_thinker",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=partial(pack, frames_per_token=8),
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed", "image_and_video"),
    video_token_id=VIDEO,
    deepstack=True,
    alike="qwen3_vl",
)
