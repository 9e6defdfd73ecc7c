"""Muse Glimmer: sliding windows with rotation, and full attention without."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import MuseGlimmerConfig, MuseGlimmerForConditionalGeneration, PreTrainedModel

from . import qwen2_vl, raster_patches
from .entry import Inputs, Sample, ZooEntry
from .qwen_media import MERGE, TEMPORAL_PATCH
from .raster_patches import cut, layouts, media
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, tagged_chat
from .weights import seeded, text_config
from .windows import FULL, WINDOW, choose_kinds


def vision_config() -> dict[str, Any]:
    return {
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": PATCH,
        "patch_temporal": TEMPORAL_PATCH,
        "merge_size": MERGE,
        "pos_emb_height": 6,
        "pos_emb_width": 6,
        "max_position_embeddings": 36,
    }


def decoder_config(layers: int, **extra: Any) -> dict[str, Any]:
    kinds = choose_kinds(layers)
    rotations = [0 if kind == FULL else 10000.0 for kind in kinds]
    return text_config(
        layers,
        sliding_window=WINDOW,
        layer_types=kinds,
        layer_rope_theta=rotations,
        qk_scale_factor=1.5,  # larger ones make much of how sums are rounded
        **extra,
    )


def around(text: dict[str, Any]) -> dict[str, Any]:
    """Settings of the whole model."""
    return {
        "text_config": text,
        "vision_config": vision_config(),
        "image_token_id": IMAGE,
        "video_token_id": VIDEO,
        "out_hidden_size": 24 * MERGE**2,
        "projector_hidden_size": 48,
        "tie_word_embeddings": False,
    }


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = MuseGlimmerConfig(**around(decoder_config(layers)))
    return seeded(MuseGlimmerForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """Patches in raster order; an image is a frame that is there twice."""
    packed = raster_patches.pack(samples, text)
    packed.pop("mm_token_type_ids")
    images = [medium for sample in samples for medium in sample.media]
    if images:
        once = torch.cat([cut(image.pixels).flatten(1) for image in images])
        packed["pixel_values"] = once.repeat(1, TEMPORAL_PATCH)
    return packed


ENTRY = ZooEntry(
    name="muse_glimmer",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed"),
    video_token_id=VIDEO,
    flash=False,
    own_masks=True,
    alike="gemma3",
)
