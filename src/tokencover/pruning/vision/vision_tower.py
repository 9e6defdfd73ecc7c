"""What merging in the vision tower and reading from it have in common.

Both need to know which patches become which visual token: one to one, by the family's
`map_vision_tokens`, or several of them one, by its `folding`. Merging needs blocks whose halves are
known as well, and patches that become visual tokens square by square.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokencover.errors import InputError
from tokencover.families import Family, Media, VisionEncoderFacts
from tokencover.methods import Method
from tokencover.pruning.vision.crop_sets import CropSet, set_up_folded, set_up_plain
from tokencover.pruning.vision.encoder_calls import (
    EncoderCalls,
    find_feature_blocks,
    find_named_layers,
    read_feature_layers,
    spread_over_batch,
)
from tokencover.pruning.vision.tower_attention import TowerAttention
from tokencover.pruning.vision.tower_kinds import TOWER_KINDS

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
        model_type: str = getattr(module.config, "model_type", "")
        name = type(method).__name__
        kind = TOWER_KINDS.get(model_type)
        if kind is None:
            raise InputError(
                f"{name} {purpose}, but nothing is known of towers of type {model_type!r}; known "
                f"are {', '.join(TOWER_KINDS)}."
            )
        self.module: nn.Module = module
        self.kind = kind
        self.classes = kind.classes
        self.blocks: list[nn.Module] = list(module.get_submodule(kind.blocks).children())
        self.feature_blocks = find_feature_blocks(config, len(self.blocks))
        self._takes_hidden = bool(find_named_layers(config))
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
        return getattr(self.blocks[number], self.kind.attention)

    def find_attention(self, number: int) -> TowerAttention:
        """How the attention of a block makes queries and keys."""
        return TowerAttention(self.attention(number))

    @property
    def window(self) -> int | None:
        """Squares along the side of a window, if the tower has its squares window by window."""
        config: Any = self.module.config
        if not hasattr(config, "fullatt_block_indexes"):
            return None
        found: int = config.window_size // config.spatial_merge_size // config.patch_size
        return found

    @property
    def facts(self) -> VisionEncoderFacts:
        """What matters to the order of its tokens."""
        return VisionEncoderFacts(self.classes, self.window)

    @property
    def taps(self) -> list[nn.Module]:
        """What takes the output of blocks other than the last to the decoder (DeepStack)."""
        return list(getattr(self.module, "deepstack_merger_list", ()))

    def find_features(self, output: Any) -> Tensor:
        """What becomes visual tokens, ``(c, t, w)``, in the output of the tower."""
        found: Tensor = (
            output.hidden_states[self.feature_block + 1]
            if self._takes_hidden
            else output.last_hidden_state
        )
        return found

    def grid(self, pixels: Tensor) -> tuple[int, int]:
        """Rows and columns of the patches that pixels ``(c, channels, height, width)`` make."""
        size: Any = self.module.config.patch_size  # type: ignore[union-attr]
        tall, wide = (size, size) if isinstance(size, int) else size
        return pixels.shape[-2] // tall, pixels.shape[-1] // wide


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
        If it cannot be done with this family's towers, or they are of an unknown kind.
    """

    def __init__(self, model: nn.Module, family: Family, method: Method, purpose: str) -> None:
        self._config: Any = model.config
        self._ids = family.visual_ids(self._config)
        self._family, self._base = family, model.get_submodule(family.base)
        self._method = method
        self.all = [
            VisionTower(model.get_submodule(path), self._config, method, purpose)
            for path in family.vision_encoders
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

    def find_crop_sets(self, tower: VisionTower, media: Media, pixels: Tensor) -> list[CropSet]:
        """The crops that a tower is going to be given, and what becomes a visual token in them."""
        folding = self._family.folding
        if folding is None:
            rows, columns = tower.grid(pixels)
            tokens = tower.classes + rows * columns
            pictures = self._count_crops(media, len(pixels), tokens)
            return set_up_plain((rows, columns), tower.classes, len(pixels), pictures)
        layouts = self._family.layouts(media)
        crops = folding.place(self._base, media, layouts, folding.measure(media), tower.facts)
        return set_up_folded(crops, [*layouts[0], *layouts[1]], tower.kind.packed)

    def carry(
        self, calls: EncoderCalls, images: Tensor | None, videos: Tensor | None
    ) -> CarriedNumbers:
        """Carry numbers of class tokens, and of what becomes a visual token, to those of a batch.

        Parameters
        ----------
        calls : EncoderCalls
            The pictures of the batch.
        images, videos : Tensor or None
            ``(crops, tokens)`` int64 on the CPU; of shorter crops only the first ones count.
        """
        if self._family.folding is None:
            return self.spread(calls.input_ids, *self._carry(calls.media, images, videos))
        crops = calls.place_crops(self.first.facts)
        tables = [
            functional.pad(each, (0, crops.tokens - each.shape[1]), value=-1).flatten()
            for each in (images, videos)
            if each is not None
        ]
        numbers = torch.cat(tables)
        found = [
            [torch.where(each < 0, -1, numbers[each]) for each in kind]
            for kind in (crops.images, crops.videos)
        ]
        return self.spread(calls.input_ids, found[0], found[1])

    def spread(
        self, input_ids: Tensor, images: list[Tensor], videos: list[Tensor]
    ) -> CarriedNumbers:
        """Numbers ``(n,)`` of each image and each video, at the visual tokens of a batch."""
        planes = [[each.unsqueeze(0) for each in pictures] for pictures in (images, videos)]
        spread = spread_over_batch(input_ids, self._ids, planes[0], planes[1], count=1)
        return CarriedNumbers(spread.values[0], spread.video)

    def _carry(
        self, media: Media, images: Tensor | None, videos: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        carry = self._family.map_vision_tokens
        assert carry is not None
        return carry(self._base, media, images, videos)

    def _count_crops(self, media: Media, crops: int, tokens: int) -> tuple[int, ...]:
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


def refuse_family(method: Method, family: Family, purpose: str, able: Sequence[str]) -> InputError:
    """The method cannot do this with the family's towers; it can with the able ones."""
    reason = "its visual tokens are neither patches of its tower nor made of known ones"
    if family.folding is not None:
        reason = (
            "its model masks patches in the tower, attends from frame to frame, or scales, folds "
            "or drops them in a way of its own: what is merged has no place there"
        )
    return InputError(
        f"{type(method).__name__} {purpose}, which cannot be done for {family.name}: {reason}. It "
        f"works with {', '.join(able)}; elsewhere use a method that acts in the decoder, for "
        "example tc.MoB."
    )


def refuse_features(name: str) -> InputError:
    """The features are there, but the tower did not run for them."""
    return InputError(
        f"the {name} features did not come through the model's vision tower in this call: hand "
        "pixels to the model, not features made before."
    )
