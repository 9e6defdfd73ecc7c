"""Mistral 3: Pixtral's images of any size, a square of patches becomes one token."""

from collections.abc import Sequence

import torch
from torch.nn.functional import pad
from transformers import Mistral3Config, Mistral3ForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE, LINE, VISION_END, Ids, tagged_chat
from .weights import seeded, text_config

MERGE = 2
GRIDS = (Grid(1, 3, 4), Grid(1, 2, 5), Grid(1, 4, 2))
PIXTRAL = {**siglip_encoder(10, "pixtral"), "head_dim": 12}


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = Mistral3Config(
        vision_config=PIXTRAL,
        text_config=text_config(layers, model_type="mistral", sliding_window=None),
        image_token_index=IMAGE,
        spatial_merge_size=MERGE,
        tie_word_embeddings=False,
    )
    return seeded(Mistral3ForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        _image(10 * recipe.seed + index, GRIDS[shape]) for index, shape in enumerate(recipe.images)
    )


def _image(seed: int, grid: Grid) -> Medium:
    side = MERGE * PATCH
    size = (grid.rows * side, grid.columns * side)
    return Medium(noise(seed, 1, 3, *size), grid, size=size, token_side=side)


def write(medium: Medium) -> Ids:
    """Write every row of tokens with a mark after it."""
    row = [IMAGE] * medium.columns
    rows = medium.layout.tokens // medium.columns
    return [*([*row, LINE] * (rows - 1)), *row, VISION_END]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Stack images of different sizes, with zeros at their right and below."""
    images = [medium for sample in samples for medium in sample.media]
    if not images:
        return {}
    sizes = torch.tensor([image.size for image in images])
    tall, wide = sizes.amax(0).tolist()
    filled = [
        pad(image.pixels, (0, wide - image.size[1], 0, tall - image.size[0])) for image in images
    ]
    return {"pixel_values": torch.cat(filled), "image_sizes": sizes}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    side = MERGE * PATCH
    sizes = inputs["image_sizes"].tolist() if "image_sizes" in inputs else []
    return [Grid(1, height // side, width // side) for height, width in sizes], []


ENTRY = ZooEntry(
    name="mistral3",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed"),
    alike="llava",
)
