"""Llama 4: chunks, blocks without rotation whose queries grow with their place, experts."""

from dataclasses import replace

import torch
from transformers import Llama4Config, Llama4ForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH
from .vocabulary import IMAGE
from .weights import seeded, text_config
from .windows import CHUNKED, FULL, WINDOW, choose_kinds

SIDE = 4


def build(
    attn_implementation: str = "sdpa",
    layers: int = 5,
    dtype: torch.dtype = torch.float32,
    floor_scale: int = 8192,
) -> PreTrainedModel:
    """Queries are scaled after so many columns, padding too: a padded batch is another then."""
    kinds = choose_kinds(layers, CHUNKED)
    text = text_config(
        layers,
        intermediate_size_mlp=48,
        attention_chunk_size=WINDOW,
        layer_types=kinds,
        no_rope_layers=[int(kind != FULL) for kind in kinds],
        floor_scale=floor_scale,
        attn_scale=0.5,
        num_local_experts=4,
        interleave_moe_layer_step=2,
    )
    vision = {
        "hidden_size": 24,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 2 * SIDE * PATCH,
        "patch_size": PATCH,
        "projector_input_dim": 24,
        "projector_output_dim": 24,
        "vision_output_dim": 24,
    }
    config = Llama4Config(text_config=text, vision_config=vision, image_token_index=IMAGE)
    return seeded(Llama4ForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    single_grids("llama4", build, SIDE, 2 * PATCH),
    alike="gemma3",
    flash=False,
    own_masks=True,
)
