"""Qwen3.5: most blocks are linear attention, with gates on the output of the others."""

from typing import Any

import torch
from transformers import PreTrainedModel, Qwen3_5Config, Qwen3_5ForConditionalGeneration

from . import qwen3_vl
from .entry import ZooEntry
from .qwen_media import layouts, media, pack, vision_config
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import HIDDEN, seeded, text_config

KINDS = ("linear_attention", "linear_attention", "full_attention")


def hybrid_text(layers: int, **extra: Any) -> dict[str, Any]:
    """Settings of a decoder of which every third block is attention, as is the last."""
    kinds = [KINDS[number % len(KINDS)] for number in range(layers)]
    text = text_config(
        layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        layer_types=[*kinds[:-1], "full_attention"],
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        rms_norm_eps=1e-2,  # gates are normed, small ones too: less would blow up rounding
        **extra,
    )
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    }
    return text


def settings() -> dict[str, Any]:
    """The settings of the whole model beside its decoder's."""
    return {
        "vision_config": vision_config(
            hidden_size=32,
            intermediate_size=48,
            out_hidden_size=HIDDEN,
            num_position_embeddings=36,
        ),
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "vision_start_token_id": VISION_START,
        "vision_end_token_id": VISION_END,
    }


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = Qwen3_5Config(text_config=hybrid_text(layers), **settings())
    return seeded(Qwen3_5ForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = ZooEntry(
    name="qwen3_5",
    build=build,
    chat=tagged_chat,
    write=qwen3_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=qwen3_vl.ENTRY.kinds,
    video_token_id=VIDEO,
    recurrent=True,
    alike="qwen3_vl",
)
