"""DeepSeek-OCR 2: 144 learned queries read each view, and a separator ends the image."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import DeepseekOcr2Config, DeepseekOcr2ForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout, Tiled
from .single_grids import KINDS, write
from .vocabulary import IMAGE, tagged_chat
from .weights import HIDDEN, seeded, text_config

LAYOUT = Tiled(Grid(1, 1, 144), None)
PATCH = 2
SIDE = 8 * PATCH
"""Pixels of a view; its 2 x 2 tokens are far fewer than the queries that read them."""


@dataclass(frozen=True)
class QueriedView(Medium):
    """A view whose tokens have no place in it: all of it is under each of them."""

    def repainted(self, token: int | None = None) -> Medium:
        return super().repainted(None if token is None else 0)


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    sam = {
        "hidden_size": 16,
        "output_channels": 16,
        "downsample_channels": [16, 24],
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "mlp_dim": 24,
        "image_size": SIDE,
        "patch_size": PATCH,
        "window_size": 5,
        "global_attn_indexes": [1],
    }
    encoder = {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    text = text_config(
        layers,
        hidden_size=HIDDEN,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=16,
        mlp_layer_types=["dense", *["sparse"] * (layers - 1)],
    )
    config = DeepseekOcr2Config(
        vision_config={"sam_config": sam, "encoder_config": encoder},
        text_config=text,
        image_token_id=IMAGE,
    )
    return seeded(DeepseekOcr2ForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    return tuple(
        QueriedView(noise(10 * recipe.seed + index, 1, 3, SIDE, SIDE), LAYOUT)
        for index, _ in enumerate(recipe.images)
    )


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    pixels = [medium.pixels for sample in samples for medium in sample.media]
    return {"pixel_values": torch.cat(pixels)} if pixels else {}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    return [LAYOUT] * len(inputs.get("pixel_values", ())), []


ENTRY = ZooEntry(
    name="deepseek_ocr2",
    build=build,
    chat=tagged_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=KINDS,
    alike="llava",
)
