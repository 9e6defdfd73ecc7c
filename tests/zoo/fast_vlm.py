"""FastVLM: a convolutional vision encoder of stride 64, here a ConvNeXt instead of timm's."""

import torch
from transformers import FastVlmConfig, FastVlmForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vocabulary import IMAGE
from .weights import seeded, text_config

SIDE = 3
STRIDE = 64


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = {
        "model_type": "convnext",
        "hidden_size": 24,
        "hidden_sizes": [4, 4, 8, 16, 24],
        "depths": [1, 1, 1, 1, 1],
        "num_stages": 5,
        "patch_size": 4,
    }
    config = FastVlmConfig(
        vision_config=vision,
        text_config=text_config(layers, model_type="qwen2"),
        image_token_index=IMAGE,
        image_seq_length=SIDE * SIDE,
    )
    # The vision encoder has no attention to choose.
    chosen = attn_implementation
    attention = {"": chosen, "text_config": chosen, "vision_config": "eager"}
    return seeded(FastVlmForConditionalGeneration, config, attention, dtype)


ENTRY = single_grids("fast_vlm", build, SIDE, STRIDE)
