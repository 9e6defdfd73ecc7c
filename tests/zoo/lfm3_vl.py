"""LFM3-VL: Qwen's media before a decoder of convolutions, windows and full attention."""

from dataclasses import replace

import torch
from transformers import Lfm3VlConfig, Lfm3VlForConditionalGeneration, PreTrainedModel

from . import exaone4_5
from .qwen_media import MERGE, TEMPORAL_PATCH
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO
from .weights import seeded, text_config
from .windows import FULL, SLIDING, WINDOW

KINDS = ("conv", FULL, "conv", SLIDING, FULL)


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        model_type="lfm3",
        sliding_window=WINDOW,
        layer_types=list(KINDS[-layers:]),
        conv_L_cache=3,
    )
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": TEMPORAL_PATCH,
    }
    config = Lfm3VlConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        projector_hidden_size=40,
        tie_word_embeddings=False,
    )
    return seeded(Lfm3VlForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(exaone4_5.ENTRY, name="lfm3_vl", build=build, recurrent=True)
