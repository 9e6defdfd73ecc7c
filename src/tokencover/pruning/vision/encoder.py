"""Vision encoders whose blocks are known, and the mapping of their tokens to visual tokens.

Reading and merging both need to know which patches become which visual token: one to one, by the
family's `map_vision_tokens`, or several to one, by its `folding`. Merging also needs blocks whose
attention and feed-forward parts are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tokencover.errors import InputError
from tokencover.families import Family, Media, VisionEncoderFacts
from tokencover.methods import Method
from tokencover.pruning.vision.encoder_calls import (
    EncoderCalls,
    get_feature_blocks,
    get_named_layers,
    read_feature_layers,
    spread_over_batch,
)
from tokencover.pruning.vision.merged_row import CropSet, build_folded_sets, build_plain_set
from tokencover.pruning.vision.vision_attention import VisionAttention


def _scale_nothing(block: Any, output: Tensor, part: int) -> Tensor:
    return output


def _scale_as_dinov2(block: Any, output: Tensor, part: int) -> Tensor:
    scaled: Tensor = block.drop_path(getattr(block, f"layer_scale{part}")(output))
    return scaled


def _scale_as_internvl(block: Any, output: Tensor, part: int) -> Tensor:
    scaled: Tensor = getattr(block, f"lambda_{part}") * (
        output if part == 1 else block.dropout(output)
    )
    name = f"drop_path{part}"  # only Qianfan-OCR's blocks have this
    return getattr(block, name)(scaled) if hasattr(block, name) else scaled


@dataclass(frozen=True, slots=True)
class VisionEncoderType:
    """One type of vision encoder.

    `blocks` and `attention` are module paths, `classes` the number of class tokens. `norms` precede
    the two parts of a block, attention and feed-forward network, between which tokens can be
    merged; without them none can. `scale` is applied to the outputs of part 1 and 2. `takes_mask`
    says whether blocks accept an attention mask, `packed` whether images share one row.
    """

    blocks: str = "encoder.layers"
    attention: str = "self_attn"
    classes: int = 0
    norms: tuple[str, str] | None = None
    scale: Callable[[Any, Tensor, int], Tensor] = _scale_nothing
    takes_mask: bool = True
    packed: bool = False

    def attend(
        self, block: Any, states: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
    ) -> Tensor:
        """The states after part 1; the mask is ``(c, 1, t, t)``, or ``(t,)`` if packed."""
        assert self.norms is not None
        attention, normed = getattr(block, self.attention), getattr(block, self.norms[0])(states)
        if self.packed and mask is not None:  # such an attention accepts none
            ends, rotation = kwargs["cu_seqlens"], kwargs.get("position_embeddings")
            attended: Any = VisionAttention(attention).attend(normed, mask, ends, rotation)
        else:
            given = {} if self.packed else {"attention_mask": mask}
            attended = attention(normed, **given, **kwargs)
        attended = attended[0] if isinstance(attended, tuple) else attended
        return states + self.scale(block, attended, 1)

    def feed(self, block: Any, states: Tensor) -> Tensor:
        """The states after part 2."""
        assert self.norms is not None
        return states + self.scale(block, block.mlp(getattr(block, self.norms[1])(states)), 2)


_CLIP = ("layer_norm1", "layer_norm2")
_INTERNVL = VisionEncoderType(
    "encoder.layer",
    "attention",
    1,
    ("layernorm_before", "layernorm_after"),
    _scale_as_internvl,
    False,
)
_PACKED = VisionEncoderType(
    "blocks", "attn", norms=("norm1", "norm2"), takes_mask=False, packed=True
)

_PACKED_TYPES = (
    "qwen2_vl_vision", "qwen2_5_vl_vision", "qwen3_vl_vision", "qwen3_vl_moe_vision",
    "qwen3_5_vision", "qwen3_5_moe_vision", "qwen2_5_omni_vision_encoder",
    "qwen3_omni_moe_vision_encoder", "glm4v_vision", "glm4v_moe_vision", "glm_ocr_vision",
    "ernie4_5_vl_moe_vision",
)  # fmt: skip

VISION_ENCODER_TYPES: dict[str, VisionEncoderType] = {
    "clip_vision_model": VisionEncoderType(classes=1, norms=_CLIP),
    "siglip_vision_model": VisionEncoderType(norms=_CLIP),
    "janus_vision_model": VisionEncoderType(norms=_CLIP),
    "dinov2": VisionEncoderType(
        "encoder.layer", "attention", 1, ("norm1", "norm2"), _scale_as_dinov2
    ),
    "internvl_vision": _INTERNVL,
    "qianfan_ocr_vision": replace(_INTERNVL, blocks="layers"),
    "idefics3_vision": VisionEncoderType(),
    "granite_docling_vision": VisionEncoderType(),
    "smolvlm_vision": VisionEncoderType(),
    "ovis2_vision": VisionEncoderType("transformer.encoder.layers", "attention"),
    "pixtral": VisionEncoderType("transformer.layers", "attention", packed=True),
    **dict.fromkeys(_PACKED_TYPES, _PACKED),
    "video_llama_3_vision": VisionEncoderType(packed=True),
    "paddleocr_vl_vision": VisionEncoderType(
        "vision_model.encoder.layers", norms=_CLIP, takes_mask=False, packed=True
    ),
    "cosmos3_edge_vision": VisionEncoderType(norms=_CLIP, takes_mask=False, packed=True),
    "kimi_k25_vision": VisionEncoderType("layers", "attn", packed=True),
    "hunyuan_vl_vision": VisionEncoderType("layers", packed=True),
}
"""By the ``model_type`` of the encoder's configuration."""


Hook = tuple[nn.Module, Any, bool]
"""A module, what to call, and whether before (else after) its forward."""


class VisionEncoder:
    """One vision encoder of a known type. Messages name `method` and `purpose`."""

    def __init__(self, module: Any, config: Any, method: Method, purpose: str) -> None:
        model_type: str = getattr(module.config, "model_type", "")
        name = type(method).__name__
        kind = VISION_ENCODER_TYPES.get(model_type)
        if kind is None:
            raise InputError(
                f"{name} {purpose}, but vision encoders of type {model_type!r} are not supported. "
                f"Supported are {', '.join(VISION_ENCODER_TYPES)}."
            )
        self.module = module
        self.kind = kind
        self.classes = kind.classes
        self.blocks: list[nn.Module] = list(module.get_submodule(kind.blocks).children())
        self.depth = len(self.blocks)
        self.feature_blocks = get_feature_blocks(config, self.depth)
        self.feature_block = max(self.feature_blocks)  # the deepest whose output is visual tokens
        self._takes_hidden = bool(get_named_layers(config))
        if min(self.feature_blocks) < 0:
            raise InputError(
                f"{name} {purpose}, but vision_feature_layer {read_feature_layers(config)} takes "
                "the input of the encoder's first block, which no block computes."
            )

    def get_attention(self, number: int) -> VisionAttention:
        """The attention of a block, with its queries and keys."""
        return VisionAttention(getattr(self.blocks[number], self.kind.attention))

    @property
    def facts(self) -> VisionEncoderFacts:
        """What decides the order of its tokens: class tokens, window size in squares."""
        config = self.module.config
        if not hasattr(config, "fullatt_block_indexes"):
            return VisionEncoderFacts(self.classes, None)
        window: int = config.window_size // config.spatial_merge_size // config.patch_size
        return VisionEncoderFacts(self.classes, window)

    @property
    def taps(self) -> list[nn.Module]:
        """Modules that take outputs of earlier blocks to the decoder (DeepStack)."""
        return list(getattr(self.module, "deepstack_merger_list", ()))

    def get_features(self, output: Any) -> Tensor:
        """The part of the encoder's output that becomes visual tokens, ``(c, t, w)``."""
        found: Tensor = (
            output.hidden_states[self.feature_block + 1]
            if self._takes_hidden
            else output.last_hidden_state
        )
        return found

    def grid(self, pixels: Tensor) -> tuple[int, int]:
        """Rows and columns of patches in pixels ``(c, channels, height, width)``."""
        size: Any = self.module.config.patch_size
        tall, wide = (size, size) if isinstance(size, int) else size
        return pixels.shape[-2] // tall, pixels.shape[-1] // wide


class VisionEncoders:
    """The vision encoders of a model, and the mapping of their tokens to visual tokens."""

    def __init__(self, model: nn.Module, family: Family, method: Method, purpose: str) -> None:
        self._config: Any = model.config
        self._ids = family.visual_ids(self._config)
        self._family, self._base = family, model.get_submodule(family.base)
        self._method = method
        self.all = [
            VisionEncoder(model.get_submodule(path), self._config, method, purpose)
            for path in family.vision_encoders
        ]
        self.first = self.all[0]

    def check_feature_layer(self, arguments: Mapping[str, Any]) -> None:
        """Raise if a call takes its features from another layer than the configuration says."""
        config, depth = self._config, self.first.depth
        if get_feature_blocks(config, depth, arguments) != get_feature_blocks(config, depth):
            raise InputError(
                f"{type(self._method).__name__} expects visual tokens from "
                f"vision_feature_layer {read_feature_layers(config)}, but this call takes "
                f"{read_feature_layers(config, arguments)}. Set it in the model's config before "
                "tc.prune, and omit it from the call."
            )

    def build_crop_sets(
        self, encoder: VisionEncoder, media: Media, pixels: Tensor
    ) -> list[CropSet]:
        """The crops of an encoder call, and which of their patches make a visual token."""
        folding = self._family.folding
        if folding is None:
            rows, columns = encoder.grid(pixels)
            tokens = encoder.classes + rows * columns
            per_image = self._count_crops(media, len(pixels), tokens)
            return build_plain_set((rows, columns), encoder.classes, len(pixels), per_image)
        layouts = self._family.layouts(media)
        crops = folding.place(self._base, media, layouts, folding.measure(media), encoder.facts)
        return build_folded_sets(crops, [*layouts[0], *layouts[1]], encoder.kind.packed)

    def carry(
        self, calls: EncoderCalls, images: Tensor | None, videos: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Map numbers of class tokens, and of what becomes a visual token, to a batch.

        `images` and `videos` are ``(crops, tokens)`` int64 on the CPU; of shorter crops only the
        first ones count.
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
    ) -> tuple[Tensor, Tensor]:
        """Numbers ``(n,)`` of every image and video at the visual tokens of a batch, ``(b, s)``.

        Returns also which tokens are of videos.
        """
        planes = [[each.unsqueeze(0) for each in media] for media in (images, videos)]
        _, values, is_video = spread_over_batch(input_ids, self._ids, planes[0], planes[1], count=1)
        return values[0], is_video

    def _carry(
        self, media: Media, images: Tensor | None, videos: Tensor | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        carry = self._family.map_vision_tokens
        assert carry is not None
        return carry(self._base, media, images, videos)

    def _count_crops(self, media: Media, crops: int, tokens: int) -> tuple[int, ...]:
        """Number of crops per image in one encoder call."""
        numbers = torch.arange(crops).unsqueeze(-1).expand(-1, tokens)
        images = None if media.images is None else numbers
        videos = None if media.videos is None else numbers
        found = self._carry(media, images, videos)
        # Crops of an image are adjacent, and its first visual token is from the first.
        starts = [int(each[each >= 0][0]) for media in found for each in media]
        return tuple(end - start for start, end in zip(starts, [*starts[1:], crops], strict=True))


def build_family_error(
    method: Method, family: Family, purpose: str, able: Sequence[str]
) -> InputError:
    """The error for a family whose vision encoder does not allow `purpose`."""
    reason = "its visual tokens are neither patches of its encoder nor made of known ones"
    if family.folding is not None:
        reason = (
            "its model masks, scales, reduces or drops patches after the encoder, or attends "
            "across frames, so merged tokens cannot be mapped back"
        )
    return InputError(
        f"{type(method).__name__} {purpose}, which {family.name} does not support: {reason}. It "
        f"works with {', '.join(able)}. Otherwise use a method that acts in the decoder, for "
        "example tc.MoB."
    )


def build_features_error(name: str) -> InputError:
    """The error for features that the vision encoder did not compute in this call."""
    return InputError(
        f"The {name} features did not come from the model's vision encoder in this call. Pass "
        "pixels, not precomputed features."
    )
