"""Muse Spark: Muse Glimmer with experts and an encoder of sounds."""

from dataclasses import replace

import torch
from transformers import MuseSparkConfig, MuseSparkForConditionalGeneration, PreTrainedModel

from . import muse_glimmer
from .vocabulary import TIMESTAMP
from .weights import HIDDEN, seeded


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = muse_glimmer.decoder_config(
        layers,
        num_local_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        moe_hidden_size=16,
        mlp_layer_types=["dense", *["sparse"] * (layers - 1)],
    )
    audio = {
        "patch_sizes": [4, 2],
        "hidden_sizes": [8, 8],
        "depths": [1, 1],
        "num_hidden_layers": 2,
        "out_hidden_size": HIDDEN,
    }
    config = MuseSparkConfig(
        **muse_glimmer.around(text), audio_config=audio, audio_token_id=TIMESTAMP
    )
    return seeded(MuseSparkForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(muse_glimmer.ENTRY, name="muse_spark", build=build, alike="muse_glimmer")
