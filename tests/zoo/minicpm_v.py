"""MiniCPM-V's images: slices and frames of any size, all patches in one long row."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from . import qwen2_vl
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .qwen3_5 import hybrid_text
from .raster_patches import cut
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE, LINE, TILE_TAGS, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import seeded

MERGE = 4
"""Patches in the side of a token: the vision encoder merges two by two, and the merger again."""
IMAGES = ((12, 16), (8, 20), (16, 8))
FRAMES = ((8, 12), (12, 8))


def medium(seed: int, patches: tuple[int, int], video: bool) -> Medium:
    rows, columns = patches
    return Medium(
        noise(seed, 1, 3, rows * PATCH, columns * PATCH),
        Grid(1, rows // MERGE, columns // MERGE),
        video=video,
        size=patches,
        token_side=MERGE * PATCH,
    )


def media(recipe: Recipe) -> tuple[Medium, ...]:
    """An image is one slice; a video is two frames, and nothing says that they are one."""
    images = [
        medium(10 * recipe.seed + index, IMAGES[shape], video=False)
        for index, shape in enumerate(recipe.images)
    ]
    frames = [
        medium(100 * recipe.seed + index, FRAMES[shape], video=True)
        for shape in recipe.videos
        for index in range(2)
    ]
    return (*images, *frames)


def put_in_a_row(pixels: Sequence[Tensor]) -> Tensor:
    """Give the patches of images side by side, ``(1, 3, side, patches * side)``."""
    patches = torch.cat([cut(each) for each in pixels])
    return patches.permute(1, 2, 0, 3).reshape(1, 3, PATCH, -1)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    ids = text["input_ids"]
    packed = {"mm_token_type_ids": (ids == IMAGE).int() + 2 * (ids == VIDEO).int()}
    all_media = [each for sample in samples for each in sample.media]
    for video, suffix in ((False, ""), (True, "_videos")):
        chosen = [each for each in all_media if each.video == video]
        if chosen:
            packed[f"pixel_values{suffix}"] = put_in_a_row([each.pixels for each in chosen])
            packed[f"target_sizes{suffix}"] = torch.tensor([each.size for each in chosen])
    return packed


def pack_plainly(samples: Sequence[Sample], text: Inputs) -> Inputs:
    """As the older ones take them: their positions have one axis."""
    packed = pack(samples, text)
    del packed["mm_token_type_ids"]
    return packed


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    def read(name: str) -> list[Layout]:
        sizes = inputs[name].tolist() if name in inputs else []
        return [Grid(1, rows // MERGE, columns // MERGE) for rows, columns in sizes]

    return read("target_sizes"), read("target_sizes_videos")


def make_build(model_class: type[PreTrainedModel], config_class: Any, **extra: Any) -> Any:
    """Give the function that builds a model of one of the classes."""

    def build(
        attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
    ) -> PreTrainedModel:
        encoder = siglip_encoder(6, "minicpm_vision")
        del encoder["model_type"]
        config = config_class(
            vision_config={**encoder, "hidden_act": "gelu_pytorch_tanh"},
            text_config={"model_type": "qwen3_5_text", **hybrid_text(layers)},
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            insert_layer_id=0,
            downsample_mode="16x",
            tie_word_embeddings=False,
            **extra,
        )
        return seeded(model_class, config, attn_implementation, dtype)

    return build


MARKS = {
    "image_start_id": VISION_START,
    "image_end_id": VISION_END,
    "slice_start_id": TILE_TAGS[0],
    "slice_end_id": TILE_TAGS[1],
    "newline_id": LINE,
}


def make_entry(name: str, build: Any) -> ZooEntry:
    return ZooEntry(
        name=name,
        build=build,
        chat=tagged_chat,
        write=qwen2_vl.write,
        media=media,
        pack=pack_plainly,
        layouts=layouts,
        kinds=("single", "ragged", "two_images", "text_only", "mixed", "video"),
        video_token_id=VIDEO,
        crops=True,
        recurrent=True,
        alike="qwen3_5",
    )
