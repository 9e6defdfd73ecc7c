"""Idefics2: a resampler reads the image, so its tokens have a number but no place."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import Idefics2Config, Idefics2ForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Sample
from .layout import Grid, Layout
from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE
from .weights import HIDDEN, seeded, text_config

LATENTS = 9


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    resampler = {
        "hidden_size": HIDDEN,
        "resampler_n_latents": LATENTS,
        "resampler_depth": 1,
        "resampler_n_heads": 2,
        "resampler_head_dim": 8,
        "num_key_value_heads": 1,
    }
    config = Idefics2Config(
        vision_config=siglip_encoder(LATENTS, "idefics2_vision"),
        perceiver_config=resampler,
        text_config=text_config(layers, model_type="mistral", sliding_window=None),
        image_token_id=IMAGE,
    )
    return seeded(Idefics2ForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Stack the images of each row; rows with fewer are filled with zeros."""
    most = max(len(sample.media) for sample in samples)
    if most == 0:
        return {}
    height, width = next(m for sample in samples for m in sample.media).pixels.shape[-2:]
    pixel_values = torch.zeros(len(samples), most, 3, height, width)
    for row, sample in enumerate(samples):
        for index, medium in enumerate(sample.media):
            pixel_values[row, index] = medium.pixels[0]
    return {"pixel_values": pixel_values}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    ids = inputs["input_ids"]
    return [Grid(1, 1, LATENTS)] * (int((ids == IMAGE).sum()) // LATENTS), []


ENTRY = replace(
    single_grids("idefics2", build, (1, LATENTS), PATCH),
    pack=pack,
    layouts=layouts,
)
