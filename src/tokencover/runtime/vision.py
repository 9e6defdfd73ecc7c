"""What merging in the vision tower and reading from it have in common.

Both need crops of one length that go through plain blocks and become visual tokens one to one, by
the family's `tower_tokens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime.families import FAMILIES
from tokencover.runtime.family import Family, Media
from tokencover.runtime.forward_pass import Places, places_of
from tokencover.runtime.layout import Layout

CLASS_TOKENS = {"clip_vision_model": 1, "siglip_vision_model": 0}
"""The towers whose blocks are known, and how many class tokens they begin with."""

Hook = tuple[nn.Module, Any, bool]
"""A module, what to call, and whether before (else after) its forward."""


class VisionTower:
    """One vision tower, checked to be one whose blocks are known.

    Parameters
    ----------
    module : nn.Module
        The tower.
    config : Any
        The model's configuration; it says which block's output becomes visual tokens.
    method : Method
        For whom, and `purpose`, for what; messages name both.
    """

    def __init__(self, module: Any, config: Any, method: Method, purpose: str) -> None:
        kind = getattr(module.config, "model_type", None)
        name = type(method).__name__
        if kind not in CLASS_TOKENS:
            raise InputError(
                f"{name} {purpose}, but nothing is known of towers of type {kind!r}; known are "
                f"{', '.join(CLASS_TOKENS)}."
            )
        self.module: nn.Module = module
        self.classes = CLASS_TOKENS[kind]
        self.blocks: list[nn.Module] = list(module.encoder.layers)
        self.feature_blocks = feature_blocks(config, len(self.blocks))
        if min(self.feature_blocks) < 0:
            raise InputError(
                f"{name} {purpose}, but vision_feature_layer {feature_layers(config)} takes what "
                "the tower's first block receives: no block computes it."
            )

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def feature_block(self) -> int:
        """The block whose output becomes visual tokens; the deepest if several are joined."""
        return max(self.feature_blocks)

    def attention(self, number: int) -> Any:
        """The attention of a block."""
        return self.blocks[number].self_attn

    def by_head(self, number: int, projected: Tensor) -> Tensor:
        """``(c, t, heads * head_dim)`` as ``(c, heads, t, head_dim)``."""
        heads: int = self.attention(number).num_heads
        split: Tensor = projected.unflatten(-1, (heads, -1))
        return split.transpose(1, 2)

    def grid(self, pixels: Tensor) -> tuple[int, int]:
        """Rows and columns of the patches that pixels ``(c, channels, height, width)`` make."""
        config: Any = self.module.config
        return pixels.shape[-2] // config.patch_size, pixels.shape[-1] // config.patch_size


def vision_towers(
    model: nn.Module, family: Family, method: Method, purpose: str
) -> list[VisionTower]:
    """The towers of a model.

    Raises
    ------
    InputError
        If this family's towers pack pictures, or fold patches, or are of a kind nobody knows.
    """
    if family.tower_tokens is None:
        able = ", ".join(each.name for each in FAMILIES if each.tower_tokens is not None)
        raise InputError(
            f"{type(method).__name__} {purpose}, which cannot be done for {family.name}: its towers"
            " pack pictures of any size or fold several patches into one visual token. It works "
            f"with {able}; elsewhere use a method that acts in the decoder, tc.MoB say."
        )
    paths = family.towers
    return [VisionTower(model.get_submodule(each), model.config, method, purpose) for each in paths]


def asked_with(config: Any) -> tuple[int, int]:
    """Depth and feature block to ask a method with, whether it acts on the tower at all.

    Without a known depth it is asked with a large one.
    """
    vision = getattr(config, "vision_config", None)
    depth = getattr(vision, "num_hidden_layers", None) or getattr(vision, "depth", None)
    depth = depth if isinstance(depth, int) else 1000
    return depth, max(0, *feature_blocks(config, depth))


def feature_layers(config: Any, arguments: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """The hidden states that become visual tokens, as the call says, else the configuration."""
    for name in ("vision_feature_layer", "vision_feature_layers"):
        layer = (arguments or {}).get(name)
        layer = getattr(config, name, None) if layer is None else layer
        if layer is not None:
            return (layer,) if isinstance(layer, int) else tuple(layer)
    return (-1,)


def feature_blocks(
    config: Any, depth: int, arguments: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """The tower blocks whose outputs those are; -1 for what the first block receives."""
    return tuple(each % (depth + 1) - 1 for each in feature_layers(config, arguments))


def check_feature_layer(
    config: Any, depth: int, arguments: Mapping[str, Any], method: Method
) -> None:
    """Refuse a call that takes its features from elsewhere than the configuration says."""
    if feature_blocks(config, depth, arguments) != feature_blocks(config, depth):
        raise InputError(
            f"{type(method).__name__} was told that visual tokens come from vision_feature_layer "
            f"{feature_layers(config)}, but this call takes {feature_layers(config, arguments)}: "
            "set it in the model's config before tc.prune, and leave it out of the call."
        )


def carried(
    model: nn.Module,
    family: Family,
    input_ids: Tensor,
    media: Media,
    images: Tensor | None,
    videos: Tensor | None,
) -> Places:
    """Carry numbers of tower tokens to the visual tokens of a batch.

    Parameters
    ----------
    images, videos : Tensor or None
        ``(crops, tokens)`` int64 on the CPU.

    Returns
    -------
    Places
        `kind` has the numbers, negative where a token is not from the tower.
    """
    assert family.tower_tokens is not None
    base = model.get_submodule(family.base)
    found = (
        [Layout(each, each, each, each, (1, 1, len(each))) for each in tokens]
        for tokens in family.tower_tokens(base, media, images, videos)
    )
    config: Any = model.config
    return places_of(input_ids, family.visual_ids(config), *found)


def crops_of_pictures(
    model: nn.Module, family: Family, media: Media, crops: int, tokens: int
) -> tuple[int, ...]:
    """How many of the crops of one encoder call each picture has, in order."""
    assert family.tower_tokens is not None
    numbers = torch.arange(crops).unsqueeze(-1).expand(-1, tokens)
    images = None if media.images is None else numbers
    videos = None if media.videos is None else numbers
    found = family.tower_tokens(model.get_submodule(family.base), media, images, videos)
    # Crops of a picture follow each other, and its first visual token is from the first of them.
    starts = [int(each[each >= 0][0]) for pictures in found for each in pictures]
    return tuple(end - start for start, end in zip(starts, [*starts[1:], crops], strict=True))


def not_through_the_tower(name: str) -> InputError:
    """The features are there, but the tower did not run for them."""
    return InputError(
        f"the {name} features did not come through the model's vision tower in this call: hand "
        "pixels to the model, not features made before."
    )
