"""PerceptionLM: an image and its tiles, pooled; with CLIP instead of a vision encoder of timm.

Videos have a test of their own, tests/pruning/test_perception_lm.py: the model encodes them with
its encoder of images.
"""

from collections.abc import Sequence

import torch
from transformers import PerceptionLMConfig, PerceptionLMForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .single_grids import KINDS, write
from .vision_encoders import PATCH, clip_encoder
from .vocabulary import IMAGE, VIDEO, tagged_chat
from .weights import seeded, text_config

SIDE = 3
POOL = 2
CROPS = 2
GRID = Grid(CROPS, SIDE, SIDE)
CROP = SIDE * POOL * PATCH


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    encoder = clip_encoder(SIDE * POOL)
    config = PerceptionLMConfig(
        vision_config={**encoder, "model_args": {"embed_dim": encoder["hidden_size"]}},
        text_config=text_config(layers, model_type="llama"),
        projector_pooling_ratio=POOL,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        tie_word_embeddings=False,
    )
    return seeded(PerceptionLMForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        Medium(noise(10 * recipe.seed + index, *_SHAPE), GRID, token_side=POOL * PATCH)
        for index, _ in enumerate(recipe.images)
    )


_SHAPE = (CROPS, 3, CROP, CROP)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    pixels = [medium.pixels for sample in samples for medium in sample.media]
    return {"pixel_values": torch.stack(pixels)} if pixels else {}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    count = len(inputs["pixel_values"]) if "pixel_values" in inputs else 0
    return [GRID] * count, []


ENTRY = ZooEntry(
    name="perception_lm",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=KINDS,
    video_token_id=VIDEO,
    alike="llava",
)
