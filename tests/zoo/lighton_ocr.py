"""LightOnOCR: Mistral 3's images before a Qwen3 decoder."""

from dataclasses import replace

import torch
from transformers import LightOnOcrConfig, LightOnOcrForConditionalGeneration, PreTrainedModel

from . import mistral3
from .vocabulary import IMAGE
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = LightOnOcrConfig(
        vision_config=mistral3.PIXTRAL,
        text_config=text_config(layers, model_type="qwen3"),
        image_token_id=IMAGE,
        spatial_merge_size=mistral3.MERGE,
        tie_word_embeddings=False,
    )
    return seeded(LightOnOcrForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(mistral3.ENTRY, name="lighton_ocr", build=build)
