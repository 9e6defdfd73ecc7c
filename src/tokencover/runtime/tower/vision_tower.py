"""What merging in the vision tower and reading from it have in common.

Both need crops of one length that go through plain blocks and become visual tokens one to one, by
the family's `tower_tokens`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.runtime.families import CLASS_TOKENS, FAMILIES, Family, Media
from tokencover.runtime.tower.encoder_calls import (
    find_feature_blocks,
    read_feature_layers,
    spread_over_batch,
)

KNOWN_BLOCKS = ("clip_vision_model", "siglip_vision_model")
"""The towers whose blocks are known."""

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
        if kind not in KNOWN_BLOCKS:
            raise InputError(
                f"{name} {purpose}, but nothing is known of towers of type {kind!r}; known are "
                f"{', '.join(KNOWN_BLOCKS)}."
            )
        self.module: nn.Module = module
        self.classes = CLASS_TOKENS[kind]
        self.blocks: list[nn.Module] = list(module.encoder.layers)
        self.feature_blocks = find_feature_blocks(config, len(self.blocks))
        if min(self.feature_blocks) < 0:
            raise InputError(
                f"{name} {purpose}, but vision_feature_layer {read_feature_layers(config)} takes "
                "what the tower's first block receives: no block computes it."
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


class VisionTowers:
    """The towers of a model, which are alike, and the way of their tokens to visual tokens.

    Parameters
    ----------
    model, family
        The whole model, and where its towers are.
    method, purpose
        For whom, and for what; messages name both.

    Raises
    ------
    InputError
        If this family's towers pack pictures, or fold patches, or are of an unknown kind.
    """

    def __init__(self, model: nn.Module, family: Family, method: Method, purpose: str) -> None:
        if family.tower_tokens is None:
            able = ", ".join(each.name for each in FAMILIES if each.tower_tokens is not None)
            raise InputError(
                f"{type(method).__name__} {purpose}, which cannot be done for {family.name}: its "
                "towers pack pictures of any size or fold several patches into one visual token. "
                f"It works with {able}; elsewhere use a method that acts in the decoder, for "
                "example tc.MoB."
            )
        self._config: Any = model.config
        self._ids = family.visual_ids(self._config)
        self._carry = functools.partial(family.tower_tokens, model.get_submodule(family.base))
        self._method = method
        self.all = [
            VisionTower(model.get_submodule(path), self._config, method, purpose)
            for path in family.towers
        ]
        self.first = self.all[0]

    def check_feature_layer(self, arguments: Mapping[str, Any]) -> None:
        """Refuse a call that takes its features from elsewhere than the configuration says."""
        config, depth = self._config, self.first.depth
        if find_feature_blocks(config, depth, arguments) != find_feature_blocks(config, depth):
            raise InputError(
                f"{type(self._method).__name__} was told that visual tokens come from "
                f"vision_feature_layer {read_feature_layers(config)}, but this call takes "
                f"{read_feature_layers(config, arguments)}: set it in the model's config before "
                "tc.prune, and leave it out of the call."
            )

    def carry(
        self, input_ids: Tensor, media: Media, images: Tensor | None, videos: Tensor | None
    ) -> CarriedNumbers:
        """Carry numbers of tower tokens to the visual tokens of a batch.

        Parameters
        ----------
        images, videos : Tensor or None
            ``(crops, tokens)`` int64 on the CPU.
        """
        found = self._carry(media, images, videos)
        planes = [[each.unsqueeze(0) for each in pictures] for pictures in found]
        spread = spread_over_batch(input_ids, self._ids, planes[0], planes[1], count=1)
        return CarriedNumbers(spread.values[0], spread.video)

    def count_crops(self, media: Media, crops: int, tokens: int) -> tuple[int, ...]:
        """How many of the crops of one encoder call each picture has, in order."""
        numbers = torch.arange(crops).unsqueeze(-1).expand(-1, tokens)
        images = None if media.images is None else numbers
        videos = None if media.videos is None else numbers
        found = self._carry(media, images, videos)
        # Crops of a picture follow each other, and its first visual token is from the first.
        starts = [int(each[each >= 0][0]) for pictures in found for each in pictures]
        return tuple(end - start for start, end in zip(starts, [*starts[1:], crops], strict=True))


@dataclass(frozen=True, slots=True)
class CarriedNumbers:
    """Numbers of tower tokens, at the visual tokens that they became.

    Attributes
    ----------
    numbers : Tensor
        ``(b, s)`` int64, negative where a token is not from the tower.
    video : Tensor
        ``(b, s)`` bool.
    """

    numbers: Tensor
    video: Tensor


def refuse_features(name: str) -> InputError:
    """The features are there, but the tower did not run for them."""
    return InputError(
        f"the {name} features did not come through the model's vision tower in this call: hand "
        "pixels to the model, not features made before."
    )
