"""LLaVA-1.5, Video-LLaVA, LLaVA-Next with tiled views that others share, Granite 4 Vision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families.family import Family, GetPass
from tokencover.families.layout import (
    Layout,
    Layouts,
    Media,
    count_patches,
    grid,
    grid_with_classes,
    grid_with_newlines,
    join_views,
    keep_tokens,
    read_pixels,
    read_rows,
    read_setting,
    require,
)
from tokencover.families.qwen import cut_features

if TYPE_CHECKING:
    from tokencover.pruning.hooks import Hooks
    from tokencover.pruning.passes import Pass


CLASS_TOKENS = {"clip_vision_model": 1, "siglip_vision_model": 0, "pixtral": 0, "dinov2": 1}
"""Number of class tokens of the supported vision encoders."""


# ---- LLaVA-1.5 -------------------------------------------------------------------------------


def _build_layouts(media: Media) -> Layouts:
    """One grid for each image: as large as its pixels, or as ``image_sizes`` says (Pixtral)."""
    if media.images is None:
        return [], []
    pixels = read_pixels(media.images, "images channels height width", "pixel_values")
    sizes = media.images.get("image_sizes")
    if sizes is None:
        return [_build_image(media, *pixels.shape[-2:])] * len(pixels), []
    return [grid(1, *count_patches(media, *size)) for size in read_rows(sizes)], []


def _build_image(media: Media, height: int, width: int) -> Layout:
    """The tokens of one image, without the first one if the model drops it."""
    rows, columns = count_patches(media, height, width)
    tokens = (grid_with_classes if _has_class_token(media) else grid)(1, rows, columns)
    # ViP-LLaVA has no such setting: it always drops the first token.
    strategy = read_setting(media, media.images or {}, "vision_feature_select_strategy")
    return tokens if strategy == "full" else keep_tokens(tokens, slice(1, None))


def _has_class_token(media: Media) -> bool:
    encoder: str = media.config.vision_config.model_type
    if encoder not in CLASS_TOKENS:
        raise InputError(
            f"the vision encoder {encoder!r} is not supported, because the grid of its tokens is "
            f"unknown; supported are {', '.join(CLASS_TOKENS)}"
        )
    return CLASS_TOKENS[encoder] > 0


def _map_vision_tokens(
    layouts: Callable[[Media], Layouts],
    base: nn.Module,
    media: Media,
    images: Tensor | None,
    videos: Tensor | None,
) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each image or frame, in order, without the first where the model drops it."""
    of_images, of_videos = layouts(media)
    return _split_tiles(of_images, images), _split_tiles(of_videos, videos)


def _split_tiles(layouts: list[Layout], numbers: Tensor | None) -> list[Tensor]:
    """Split numbers ``(tiles, tokens)`` by images or videos whose frames are one tile each."""
    if numbers is None:
        return []
    parts, start = [], 0
    for layout in layouts:
        frames = layout.shape[0]
        tiles = numbers[start : start + frames]
        parts.append(tiles[:, tiles.shape[1] - len(layout) // frames :].flatten())
        start += frames
    return parts


LLAVA = Family(
    name="LLaVA-1.5",
    model_types=("llava", "vipllava"),
    layouts=_build_layouts,
    map_vision_tokens=partial(_map_vision_tokens, _build_layouts),
    class_token=True,
    encodes_singly=True,
)
"""LLaVA-1.5 and ViP-LLaVA: one grid for each image."""


# ---- Video-LLaVA -----------------------------------------------------------------------------


def _build_video_llava_layouts(media: Media) -> Layouts:
    """One grid for each image; for each video its frames, each after its class token."""
    images, videos = [], []
    if media.images is not None:
        # The second name is the one that processors used before transformers 5.23.
        names = ("pixel_values", "pixel_values_images")
        pixels = read_pixels(media.images, "images channels height width", *names)
        images = [_build_image(media, *pixels.shape[-2:])] * len(pixels)
    if media.videos is not None:
        axes = "videos frames channels height width"
        pixels = read_pixels(media.videos, axes, "pixel_values_videos")
        rows, columns = count_patches(media, *pixels.shape[-2:])
        videos = [grid_with_classes(pixels.shape[1], rows, columns)] * len(pixels)
    return images, videos


VIDEO_LLAVA = Family(
    name="Video-LLaVA",
    model_types=("video_llava",),
    needs={"video_llava": "5.21"},
    layouts=_build_video_llava_layouts,
    vision_encoders=("model.image_tower", "model.video_tower"),
    map_vision_tokens=partial(_map_vision_tokens, _build_video_llava_layouts),
    class_token=True,
    encodes_singly=True,
)
"""Video-LLaVA: images without, frames of videos with the class token of their vision encoder."""


# ---- images of any resolution: a base view, then a tiled view without its padding -------------
# LLaVA-Next, LLaVA-OneVision and Granite 4 Vision share it. The tiles cover the image at the
# resolution, of those the model was trained on, that loses least of it. The model cuts their
# padding, so rows and columns of the tiled view span the image from edge to edge.


def measure_base(media: Media) -> int:
    """Tokens along one side of a view; fewer than patches if the model downsamples."""
    vision = media.config.vision_config
    side: int = vision.image_size // vision.patch_size
    rate = getattr(media.config, "downsample_rate", None)
    return side if rate is None else int(side * Fraction(rate))


def measure_tiles(media: Media, size: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the tiled view of an image of this height and width."""
    view: int = media.config.vision_config.image_size
    best = select_resolution(size, media.config.image_grid_pinpoints)
    rows, columns = (length // view * measure_base(media) for length in best)
    return _cut_padding(size, rows, columns)


def select_resolution(size: Sequence[int], resolutions: Sequence[Sequence[int]]) -> tuple[int, int]:
    """The resolution that keeps most of the image's pixels, then the one with least padding."""
    height, width = size

    def rate_loss(resolution: Sequence[int]) -> tuple[int, int]:
        tall, wide = resolution
        scale = min(wide / width, tall / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return -kept, tall * wide - kept

    tall, wide = min(resolutions, key=rate_loss)
    return tall, wide


def _cut_padding(size: Sequence[int], rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns without the padding, which is equal on both sides."""
    height, width = size
    # Rounded before it is cut to an integer, as in the models, against errors like 2.9999999999.
    if width / height > columns / rows:
        filled = int(round(height * (columns / width), 7))
        return rows - (rows - filled) // 2 * 2, columns
    filled = int(round(width * (rows / height), 7))
    return rows, columns - (columns - filled) // 2 * 2


# ---- LLaVA-Next ------------------------------------------------------------------------------


def build_next_layouts(media: Media) -> Layouts:
    """Two views for each image: frame 0 is the base view, frame 1 all tiles as one view.

    Videos are pooled frames without newlines; only LLaVA-Next-Video has any.
    """
    images, videos = [], []
    if media.images is not None:
        side = measure_base(media)
        sizes = read_rows(require(media.images, "image_sizes"))
        shapes = [measure_tiles(media, size) for size in sizes]
        images = [join_views(grid(1, side, side), grid_with_newlines(*shape)) for shape in shapes]
    if media.videos is not None:
        axes = "videos frames channels height width"
        pixels = read_pixels(media.videos, axes, "pixel_values_videos")
        side = measure_base(media) // media.config.spatial_pool_stride
        videos = [grid(pixels.shape[1], side, side)] * len(pixels)
    return images, videos


def _map_next_tokens(
    base: Any, media: Media, images: Tensor | None, videos: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """Let the model pack its tiles: it moves and cuts features, but computes nothing."""
    if videos is not None:
        raise InputError(
            "LLaVA-Next pools the frames of a video, so tokens of the vision encoder are not "
            "visual tokens: use a method that neither merges nor reads there, for example tc.MoB."
        )
    if images is None or media.images is None:
        return [], []
    from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

    sizes = read_rows(require(media.images, "image_sizes"))
    side = media.config.vision_config.image_size
    pinpoints = media.config.image_grid_pinpoints
    counts = [image_size_to_num_patches(size, pinpoints, side) for size in sizes]
    strategy = read_setting(media, media.images, "vision_feature_select_strategy")
    # Doubles represent the numbers exactly; newline tokens become -1.
    numbers = images[:, 1:] if strategy == "default" else images
    tiles = numbers.double().unsqueeze(-1).split(counts)
    newline = torch.tensor([-1.0], dtype=torch.float64)
    packed, _ = base.pack_image_features(tiles, torch.tensor(sizes), strategy, newline)
    return [each.squeeze(-1).long() for each in packed], []


LLAVA_NEXT = Family(
    name="LLaVA-Next",
    model_types=("llava_next", "llava_next_video"),
    layouts=build_next_layouts,
    tiles=True,
    map_vision_tokens=_map_next_tokens,
    class_token=True,
)
"""LLaVA-Next and LLaVA-Next-Video: a base view, then tiles whose rows end with newline tokens."""


# ---- Granite 4 Vision, whose decoder adds visual features before many layers -----------------


def add_features(decoder: Any, hooks: Hooks, get_pass: GetPass) -> None:
    """Add features before layers in place of the decoder, which knows the whole sequence only."""
    taken: WeakKeyDictionary[Pass, tuple[Tensor, Mapping[int, Tensor]]] = WeakKeyDictionary()

    def take(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        current, features = get_pass(), kwargs.get("deepstack_features")
        if current is None or not current.tokens.has_visual or not features:
            return None
        taken[current] = kwargs["vision_mask"].squeeze(-1), features
        return args, {**kwargs, "deepstack_features": None, "vision_mask": None}

    def add(layer_idx: int, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        current = get_pass()
        if current is None or current not in taken or layer_idx not in taken[current][1]:
            return None
        positions, features = taken[current][0], taken[current][1][layer_idx]
        kept = current.find_kept(layer_idx - 1)  # hooks run before tokens are dropped here
        if kept is not None:
            positions, features = cut_features(positions, features, kept)
        states, positions = args[0], positions.to(args[0].device)
        changed = states[positions] + features.to(states.device, states.dtype)
        states = states.masked_scatter(positions.unsqueeze(-1), changed.view(-1))
        return (states, *args[1:]), kwargs

    hooks.before(decoder, take)
    for layer_idx, layer in enumerate(decoder.layers):
        hooks.before(layer, partial(add, layer_idx))


GRANITE4_VISION = Family(
    name="Granite 4 Vision",
    model_types=("granite4_vision",),
    layouts=build_next_layouts,
    projector="model.layerwise_projectors.0",
    tiles=True,
    decoder_hooks=add_features,
    needs={"granite4_vision": "5.20"},
)
"""Granite 4 Vision: LLaVA-Next's views, whose features are added before many layers."""
