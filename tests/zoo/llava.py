"""LLaVA-1.5: CLIP without its class token, one square grid per image."""

from collections.abc import Sequence

import torch
from transformers import LlavaConfig, LlavaForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .vision_encoders import PATCH, clip_encoder
from .vocabulary import IMAGE, LINE, Ids, plain_chat
from .weights import seeded, text_config

SIDE = 5
GRID = Grid(1, SIDE, SIDE)


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = LlavaConfig(
        vision_config=clip_encoder(SIDE),
        text_config=text_config(layers, model_type="llama"),
        image_token_index=IMAGE,
        image_seq_length=GRID.tokens,
    )
    return seeded(LlavaForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    side = SIDE * PATCH
    return tuple(
        Medium(noise(10 * recipe.seed + index, 1, 3, side, side), GRID, token_side=PATCH)
        for index, _ in enumerate(recipe.images)
    )


def write(medium: Medium) -> Ids:
    return [IMAGE] * medium.layout.tokens + [LINE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    pixels = [medium.pixels for sample in samples for medium in sample.media]
    return {"pixel_values": torch.cat(pixels)} if pixels else {}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    count = len(inputs["pixel_values"]) if "pixel_values" in inputs else 0
    return [GRID] * count, []


ENTRY = ZooEntry(
    name="llava",
    build=build,
    chat=plain_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
)
