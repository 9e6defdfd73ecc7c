"""Video-LLaVA: images without, frames of videos WITH the class token of the CLIP vision encoder."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, VideoLlavaConfig, VideoLlavaForConditionalGeneration

from .entry import Inputs, Medium, Recipe, Sample, ZooEntry, noise
from .layout import Grid, Layout, WithClass
from .vision_encoders import PATCH, clip_encoder
from .vocabulary import IMAGE, LINE, VIDEO, Ids, plain_chat
from .weights import seeded, text_config

SIDE = 4
FRAMES = 2
GRID = Grid(1, SIDE, SIDE)


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    config = VideoLlavaConfig(
        vision_config=clip_encoder(SIDE),
        text_config=text_config(layers, model_type="llama"),
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_seq_length=GRID.tokens,
        video_seq_length=FRAMES * (GRID.tokens + 1),
    )
    return seeded(VideoLlavaForConditionalGeneration, config, attn_implementation, dtype)


def media(recipe: Recipe) -> tuple[Medium, ...]:
    side = SIDE * PATCH
    images = [
        Medium(noise(10 * recipe.seed + index, 1, 3, side, side), GRID, token_side=PATCH)
        for index, _ in enumerate(recipe.images)
    ]
    return (*images, *(_video(100 * recipe.seed + index) for index in recipe.videos))


def _video(seed: int) -> Medium:
    pixels = noise(seed, FRAMES, 3, SIDE * PATCH, SIDE * PATCH)
    layout = WithClass(Grid(FRAMES, SIDE, SIDE))
    return Medium(pixels, layout, video=True, token_side=PATCH)


def write(medium: Medium) -> Ids:
    return [VIDEO if medium.video else IMAGE] * medium.layout.tokens + [LINE]


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    all_media = [medium for sample in samples for medium in sample.media]
    images = [medium.pixels for medium in all_media if not medium.video]
    videos = [medium.pixels for medium in all_media if medium.video]
    packed = {"pixel_values": torch.cat(images)} if images else {}
    return {**packed, **({"pixel_values_videos": torch.stack(videos)} if videos else {})}


def layouts(inputs: Inputs) -> tuple[list[Layout], list[Layout]]:
    images = len(inputs["pixel_values"]) if "pixel_values" in inputs else 0
    videos: Iterable[Tensor] = inputs.get("pixel_values_videos", ())
    return [GRID] * images, [WithClass(Grid(len(video), SIDE, SIDE)) for video in videos]


ENTRY = ZooEntry(
    name="video_llava",
    build=build,
    chat=plain_chat,
    write=write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed", "video", "image_and_video"),
    video_token_id=VIDEO,
)
