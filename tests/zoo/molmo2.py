"""Molmo 2: attention pools squares of patches, and all tokens of images see each other."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import Molmo2Config, Molmo2ForConditionalGeneration, PreTrainedModel

from .entry import Inputs, Sample
from .raster_patches import cut
from .single_grids import single_grids
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VISION_END, VISION_START
from .weights import HIDDEN, seeded, text_config

SIDE, POOL = 4, 2
WIDTH = 24


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 12}
    vision = {
        "hidden_size": WIDTH,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "image_size": [SIDE * POOL * PATCH] * 2,
        "patch_size": PATCH,
        **heads,
    }
    adapter = {
        "vision_feature_layer": [1, 0],
        "hidden_size": WIDTH,
        "intermediate_size": 32,
        "text_hidden_size": HIDDEN,
        **heads,
    }
    config = Molmo2Config(
        vision_config=vision,
        adapter_config=adapter,
        text_config=text_config(layers, additional_vocab_size=4),
        image_patch_id=IMAGE,
        image_start_token_id=VISION_START,
        image_end_token_id=VISION_END,
    )
    return seeded(Molmo2ForConditionalGeneration, config, attn_implementation, dtype)


def pool(first: int) -> Tensor:
    """Numbers of the patches that become each token of an image, ``(tokens, POOL * POOL)``."""
    side = SIDE * POOL
    numbers = first + torch.arange(side * side).view(SIDE, POOL, SIDE, POOL)
    return numbers.transpose(1, 2).reshape(-1, POOL * POOL)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = {"mm_token_type_ids": (text["input_ids"] == IMAGE).int()}
    images = [medium for sample in samples for medium in sample.media]
    if not images:
        return packed
    patches = [cut(image.pixels).flatten(1) for image in images]
    starts = range(0, len(patches) * len(patches[0]), len(patches[0]))
    return {
        **packed,
        "pixel_values": torch.stack(patches),
        "image_token_pooling": torch.cat([pool(first) for first in starts]),
        "image_grids": torch.tensor([[SIDE, SIDE, 0, 0]] * len(images)),
    }


ENTRY = replace(
    single_grids("molmo2", build, SIDE, POOL * PATCH),
    pack=pack,
    alike="gemma3",
    flash=False,
    own_masks=True,
)
