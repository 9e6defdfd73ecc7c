"""Cohere Compass: Qwen3-VL's images and DeepStack, windows, full attention without rotation."""

from dataclasses import replace

import torch
from transformers import CohereCompassConfig, CohereCompassForConditionalGeneration, PreTrainedModel

from . import qwen3_vl
from .qwen_media import vision_config
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START
from .weights import HIDDEN, seeded, text_config
from .windows import FULL, SLIDING, WINDOW, choose_kinds


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        logit_scale=1.0,
    )
    del text["head_dim"]  # always the width of a head
    rotation = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
    text["rope_parameters"] = {SLIDING: rotation, FULL: None}
    vision = vision_config(
        depth=4,
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=HIDDEN,
        num_position_embeddings=36,
        deepstack_visual_indexes=[0, 1, 2],
    )
    config = CohereCompassConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
    )
    return seeded(CohereCompassForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    qwen3_vl.ENTRY,
    name="cohere_compass",
    build=build,
    flash=False,
    own_masks=True,
    alike="qwen3_vl",
)
