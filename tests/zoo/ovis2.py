"""Ovis2: an image is words of a visual vocabulary; the tags around it have features too."""

import torch
from transformers import Ovis2Config, Ovis2ForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH
from .vocabulary import IMAGE, TILE_TAGS, VISION_END, VISION_START
from .weights import HIDDEN, seeded, text_config

SIDE = 4
TAGS = [VISION_START, VISION_END, *TILE_TAGS[:3]]


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 2 * SIDE * PATCH,
        "patch_size": PATCH,
        "vocab_size": 20,
        "hidden_stride": 2,
        "num_visual_indicator_tokens": 5,
    }
    text = text_config(layers, model_type="qwen2")
    config = Ovis2Config(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE,
        visual_indicator_token_ids=TAGS,
        vocab_size=text["vocab_size"],
        hidden_size=HIDDEN,
        tie_word_embeddings=False,
    )
    model = seeded(Ovis2ForConditionalGeneration, config, attn_implementation, dtype)
    model.generation_config.suppress_tokens += TAGS  # they stand for images too
    return model


ENTRY = single_grids("ovis2", build, SIDE, 2 * PATCH)
