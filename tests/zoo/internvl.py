"""InternVL: crops of one size, shuffled down by two; the crops of an image follow each other."""

from collections.abc import Sequence

import torch
from transformers import InternVLConfig, InternVLForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .vision_encoders import PATCH
from .vocabulary import IMAGE, LINE, VISION_END, VISION_START, Ids, tagged_chat
from .weights import seeded, text_config

SIDE = 3
CROP = 2 * SIDE * PATCH
CROPS = (2, 3, 1)


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": [CROP, CROP],
        "patch_size": [PATCH, PATCH],
    }
    config = InternVLConfig(
        vision_config=vision,
        text_config=text_config(layers, model_type="qwen2"),
        image_token_id=IMAGE,
        image_seq_length=SIDE * SIDE,
        tie_word_embeddings=False,
    )
    return seeded(InternVLForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        Medium(
            noise(10 * recipe.seed + index, CROPS[shape], 3, CROP, CROP),
            Grid(CROPS[shape], SIDE, SIDE),
            token_side=2 * PATCH,
        )
        for index, shape in enumerate(recipe.images)
    )


def write(medium: Medium) -> Ids:
    return [VISION_START, *[IMAGE] * medium.layout.tokens, VISION_END, LINE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    pixels = [medium.pixels for sample in samples for medium in sample.media]
    return {"pixel_values": torch.cat(pixels)} if pixels else {}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    """Read the number of crops of each image from the distance of its start and end tags."""
    ids = inputs["input_ids"].flatten()
    starts, ends = ((ids == tag).nonzero().flatten() for tag in (VISION_START, VISION_END))
    crops = (ends - starts - 1) // (SIDE * SIDE)
    return [Grid(count, SIDE, SIDE) for count in crops.tolist()], []


ENTRY = ZooEntry(
    name="internvl",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
    crops=True,
)
