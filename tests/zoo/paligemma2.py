"""PaliGemma 2: Gemma 2's decoder, with windows and capped products, in both directions."""

from dataclasses import replace

import torch
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration, PreTrainedModel

from . import paligemma
from .vision_encoders import siglip_encoder
from .vocabulary import IMAGE
from .weights import HIDDEN, seeded, text_config
from .windows import WINDOW, choose_kinds


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        model_type="gemma2",
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        query_pre_attn_scalar=8,
        final_logit_softcapping=None,  # before transformers 5.23 it was not read
    )
    config = PaliGemmaConfig(
        vision_config=siglip_encoder(paligemma.SIDE) | {"projection_dim": HIDDEN},
        text_config=text,
        image_token_index=IMAGE,
        projection_dim=HIDDEN,
        tie_word_embeddings=False,
    )
    # Gemma 2 has no other attention.
    return seeded(PaliGemmaForConditionalGeneration, config, "eager", dtype)


ENTRY = replace(paligemma.ENTRY, name="paligemma2", build=build, alike="gemma3")
