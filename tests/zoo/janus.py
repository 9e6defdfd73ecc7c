"""Janus: one grid of a SigLIP-like vision encoder for each image; it can draw as well."""

import torch
from transformers import JanusConfig, JanusForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH
from .vocabulary import IMAGE
from .weights import HIDDEN, seeded, text_config

SIDE = 4


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = {
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "mlp_ratio": 1.5,
        "image_size": SIDE * PATCH,
        "patch_size": PATCH,
        "projection_dim": HIDDEN,
        "num_image_tokens": SIDE * SIDE,
    }
    drawing = {
        "embed_dim": 4,
        "num_embeddings": 8,
        "latent_channels": 8,
        "base_channels": 32,
        "channel_multiplier": [1, 1],
        "num_res_blocks": 1,
        "projection_dim": HIDDEN,
        "image_token_embed_dim": HIDDEN,
    }
    config = JanusConfig(
        vision_config=vision,
        vq_config=drawing,
        text_config=text_config(layers, model_type="llama"),
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    return seeded(JanusForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = single_grids("janus", build, SIDE, PATCH)
