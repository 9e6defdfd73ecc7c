"""LLaVA-Next: a base view and unpadded tiles with newline tokens, on a Mistral decoder."""

from collections.abc import Sequence

import torch
from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration, PreTrainedModel

from .anyres import BASE, PINPOINTS, SIDE, image, stack_images, unpadded
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry
from .layout import Layout, Tiled
from .vision_encoders import clip_encoder
from .vocabulary import IMAGE, LINE, Ids, plain_chat
from .weights import seeded, text_config

SIZES = ((24, 14), (12, 24), (11, 12))


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = LlavaNextConfig(
        vision_config=clip_encoder(SIDE),
        text_config=text_config(layers, model_type="mistral", sliding_window=None),
        image_token_index=IMAGE,
        image_grid_pinpoints=PINPOINTS,
        image_seq_length=BASE.tokens,
    )
    return seeded(LlavaNextForConditionalGeneration, config, attn_implementation, dtype)


def layout_of(size: tuple[int, ...]) -> Tiled:
    return Tiled(BASE, unpadded(size))


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        image(10 * recipe.seed + index, SIZES[shape], layout_of(SIZES[shape]))
        for index, shape in enumerate(recipe.images)
    )


def write(medium: Medium) -> Ids:
    return [IMAGE] * medium.layout.tokens + [LINE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    return stack_images([medium for sample in samples for medium in sample.media])


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    sizes = inputs["image_sizes"].tolist() if "image_sizes" in inputs else []
    return [layout_of(size) for size in sizes], []


ENTRY = ZooEntry(
    name="llava_next",
    build=build,
    chat=plain_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
)
