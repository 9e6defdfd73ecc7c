"""PaliGemma: Gemma's decoder, in which all tokens of the prompt see each other."""

from dataclasses import replace

import torch
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE
from .weights import HIDDEN, seeded, text_config

SIDE = 4


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = PaliGemmaConfig(
        vision_config=siglip_encoder(SIDE) | {"projection_dim": HIDDEN},
        text_config=text_config(layers, model_type="gemma"),
        image_token_index=IMAGE,
        projection_dim=HIDDEN,
        tie_word_embeddings=False,
    )
    return seeded(PaliGemmaForConditionalGeneration, config, attn_implementation, dtype)


_GRIDS = single_grids("paligemma", build, SIDE, PATCH)
ENTRY = replace(
    _GRIDS,
    # The processor marks a prompt with 0, and an answer that follows with 1.
    pack=lambda samples, text: {
        **_GRIDS.pack(samples, text),
        "token_type_ids": torch.zeros_like(text["input_ids"]),
    },
    alike="gemma3",
    flash=False,
    own_masks=True,
)
