"""Command A Vision: sliding windows with rotation, and full attention without."""

from dataclasses import replace

import torch
from transformers import Cohere2VisionConfig, Cohere2VisionForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config
from .windows import WINDOW, choose_kinds

SIDE = 4


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        model_type="cohere2",
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        logit_scale=1.0,
    )
    config = Cohere2VisionConfig(
        vision_config=siglip_encoder(2 * SIDE),
        text_config=text,
        image_token_id=IMAGE,
        downsample_factor=2,
        alignment_intermediate_size=48,
        tie_word_embeddings=False,
    )
    return seeded(Cohere2VisionForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    single_grids("cohere2_vision", build, SIDE, 2 * PATCH),
    alike="gemma3",
    flash=False,
    own_masks=True,
)
