"""Qianfan-OCR: InternVL's crops before a Qwen3 decoder."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel, QianfanOCRConfig, QianfanOCRForConditionalGeneration

from . import internvl
from .vision_encoders import siglip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = QianfanOCRConfig(
        vision_config=siglip_encoder(2 * internvl.SIDE, "qianfan_ocr_vision"),
        text_config=text_config(layers, model_type="qwen3"),
        image_token_id=IMAGE,
        tie_word_embeddings=False,
    )
    return seeded(QianfanOCRForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    internvl.ENTRY,
    name="qianfan_ocr",
    build=build,
    kinds=("single", "ragged", "text_only", "mixed"),
    alike="internvl",
)
