"""Idefics3: tiles, each after a tag of its row and column, then a global view."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Idefics3Config, Idefics3ForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import (
    AROUND_IMAGE,
    GLOBAL_VIEW,
    IMAGE,
    LINE,
    TILE_TAGS,
    Ids,
    idefics_chat,
)
from .weights import seeded, text_config

SIDE = 3
CROP = 2 * SIDE * PATCH
TILES = ((1, 2), (0, 0), (2, 2))


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = Idefics3Config(
        vision_config=siglip_encoder(2 * SIDE, "idefics3_vision"),
        text_config=text_config(layers, model_type="llama"),
        image_token_id=IMAGE,
        scale_factor=2,
    )
    return seeded(Idefics3ForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        _image(10 * recipe.seed + index, TILES[i]) for index, i in enumerate(recipe.images)
    )


def _image(seed: int, tiles: tuple[int, int]) -> Medium:
    rows, columns = tiles
    crops = rows * columns + 1
    pixels = noise(seed, crops, 3, CROP, CROP)
    return Medium(pixels, Grid(crops, SIDE, SIDE), size=tiles, token_side=2 * PATCH)


def write(medium: Medium) -> Ids:
    rows, columns = medium.size
    crop = [IMAGE] * (SIDE * SIDE)
    ids: Ids = []
    for row in range(rows):
        for column in range(columns):
            ids += [AROUND_IMAGE, TILE_TAGS[row * columns + column], *crop]
        ids += [LINE]
    return [*ids, *([LINE] if rows else []), AROUND_IMAGE, GLOBAL_VIEW, *crop, AROUND_IMAGE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Stack the crops of each row; rows with fewer crops are filled with zeros."""
    crops = [[medium.pixels for medium in sample.media] for sample in samples]
    most = max(sum(len(pixels) for pixels in row) for row in crops)
    if most == 0:
        return {}
    pixel_values = torch.zeros(len(samples), most, 3, CROP, CROP)
    pixel_attention_mask = torch.zeros(len(samples), most, CROP, CROP, dtype=torch.long)
    for row, of_row in enumerate(crops):
        if of_row:
            pixels = torch.cat(of_row)
            pixel_values[row, : len(pixels)] = pixels
            pixel_attention_mask[row, : len(pixels)] = 1
    return {"pixel_values": pixel_values, "pixel_attention_mask": pixel_attention_mask}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    """Every global view ends an image; the tile tags before it are its tiles."""
    ids = inputs["input_ids"].flatten()
    tags = ids[(ids == GLOBAL_VIEW) | _is_tile_tag(ids)].tolist()
    found: list[Layout] = []
    tiles = 0
    for tag in tags:
        tiles += 1
        if tag == GLOBAL_VIEW:
            found.append(Grid(tiles, SIDE, SIDE))
            tiles = 0
    return found, []


def _is_tile_tag(ids: Tensor) -> Tensor:
    return (ids >= TILE_TAGS[0]) & (ids <= TILE_TAGS[-1])


ENTRY = ZooEntry(
    name="idefics3",
    build=build,
    chat=idefics_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
    crops=True,
)
