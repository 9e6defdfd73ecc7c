"""Aya Vision: a SigLIP vision encoder before the decoder of Command R7B."""

from dataclasses import replace

import torch
from transformers import AyaVisionConfig, AyaVisionForConditionalGeneration, PreTrainedModel

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
    config = AyaVisionConfig(
        vision_config=siglip_encoder(2 * SIDE),
        text_config=text,
        image_token_index=IMAGE,
        downsample_factor=2,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    return seeded(AyaVisionForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    single_grids("aya_vision", build, SIDE, 2 * PATCH),
    alike="gemma3",
    flash=False,
    own_masks=True,
)
