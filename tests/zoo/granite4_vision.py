"""Granite 4 Vision: images as LLaVA-Next's, whose features are added before every block."""

from dataclasses import replace

import torch
from transformers import (
    Granite4VisionConfig,
    Granite4VisionForConditionalGeneration,
    PreTrainedModel,
)

from . import llava_next
from .anyres import BASE, PINPOINTS, VIEW
from .vision_encoders import PATCH, clip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    encoder = {**clip_encoder(BASE.rows), "hidden_size": 64}  # its Q-Former's heads are 64 wide
    config = Granite4VisionConfig(
        vision_config={**encoder, "image_size": VIEW, "patch_size": PATCH // 2},
        text_config=text_config(
            layers, model_type="granite4_vision_text", attention_multiplier=0.4
        ),
        qformer_config={
            "model_type": "blip_2_qformer",
            "num_hidden_layers": 1,
            "intermediate_size": 48,
            "cross_attention_frequency": 1,
            "max_position_embeddings": 64,
            "use_qformer_text_input": False,
        },
        downsample_rate="1/2",
        deepstack_layer_map=[[1, 0], [2, 2]],
        spatial_target_layers=[1, 3, 4],
        image_token_index=IMAGE,
        image_grid_pinpoints=PINPOINTS,
    )
    return seeded(Granite4VisionForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    llava_next.ENTRY,
    name="granite4_vision",
    build=build,
)
