"""VideoLLaMA 3: any resolution; how many patches become a token is said for each medium."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel, VideoLlama3Config, VideoLlama3ForConditionalGeneration

from . import qwen2_vl, qwen_media
from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout
from .qwen_media import IMAGE_GRIDS, VIDEO_GRIDS
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, tagged_chat
from .weights import seeded, text_config

VALUES = 3 * PATCH * PATCH
MERGES = {"image": 1, "video": 2}


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": PATCH,
    }
    config = VideoLlama3Config(
        vision_config=vision,
        text_config=text_config(layers, model_type="qwen2"),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
    )
    return seeded(VideoLlama3ForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    images = [
        _medium(10 * recipe.seed + index, _halve(IMAGE_GRIDS[shape]), "image")
        for index, shape in enumerate(recipe.images)
    ]
    return (
        *images,
        *(_medium(100 * recipe.seed, VIDEO_GRIDS[shape], "video") for shape in recipe.videos),
    )


def _halve(patches: tuple[int, int, int]) -> tuple[int, int, int]:
    frames, rows, columns = patches
    return frames, rows // 2, columns // 2


def _medium(seed: int, patches: tuple[int, int, int], kind: str) -> Medium:
    frames, rows, columns = patches
    side = MERGES[kind]
    return Medium(
        noise(seed, frames * rows * columns, VALUES),
        Grid(frames, rows // side, columns // side),
        video=kind == "video",
        size=patches,
        patches_per_token=side**2,
    )


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = qwen_media.pack(samples, text)
    del packed["mm_token_type_ids"]
    for kind, side in MERGES.items():
        if f"{kind}_grid_thw" in packed:
            packed[f"{kind}_merge_sizes"] = torch.tensor([side] * len(packed[f"{kind}_grid_thw"]))
    return packed


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    images, videos = (
        [
            Grid(frames, rows // side, columns // side)
            for frames, rows, columns in inputs[f"{kind}_grid_thw"].tolist()
        ]
        if f"{kind}_grid_thw" in inputs
        else []
        for kind, side in MERGES.items()
    )
    return list(images), list(videos)


ENTRY = ZooEntry(
    name="video_llama_3",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed", "video", "image_and_video"),
    video_token_id=VIDEO,
    alike="llava",
)
