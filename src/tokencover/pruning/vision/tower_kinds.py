"""Makes of vision towers whose blocks are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tokencover.pruning.vision.tower_attention import TowerAttention


@dataclass(frozen=True, slots=True)
class Halves:
    """The two halves of a tower block, between which tokens can be merged.

    Attributes
    ----------
    attend : callable
        ``attend(block, states, mask, kwargs)`` gives states after attention. The mask is ``(c, 1,
        t, t)``, added to products of queries and keys; ``(t,)`` where pictures are packed.
    feed : callable
        ``feed(block, states)`` gives states after the feed-forward network.
    """

    attend: Callable[[Any, Tensor, Tensor | None, dict[str, Any]], Tensor]
    feed: Callable[[Any, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class TowerKind:
    """One make of tower.

    Attributes
    ----------
    blocks, attention : str
        Where its blocks are, and in each of them its attention.
    classes : int
        How many class tokens come first.
    halves : Halves or None
        How to run its blocks by halves; None if tokens cannot be merged in them.
    takes_mask : bool
        Whether its blocks take an attention mask; otherwise only their attention does.
    packed : bool
        Whether it has pictures of all sizes one after the other in one row, instead of a row each.
    """

    blocks: str = "encoder.layers"
    attention: str = "self_attn"
    classes: int = 0
    halves: Halves | None = None
    takes_mask: bool = True
    packed: bool = False


def _attend_as_clip(
    block: Any, states: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    normed = block.layer_norm1(states)
    attended: Tensor = block.self_attn(hidden_states=normed, attention_mask=mask, **kwargs)[0]
    return states + attended


def _feed_as_clip(block: Any, states: Tensor) -> Tensor:
    fed: Tensor = block.mlp(block.layer_norm2(states))
    return states + fed


def _attend_as_dinov2(
    block: Any, states: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    attended, _ = block.attention(block.norm1(states), attention_mask=mask, **kwargs)
    scaled: Tensor = block.drop_path(block.layer_scale1(attended))
    return scaled + states


def _feed_as_dinov2(block: Any, states: Tensor) -> Tensor:
    fed = block.layer_scale2(block.mlp(block.norm2(states)))
    scaled: Tensor = block.drop_path(fed)
    return scaled + states


def _attend_as_internvl(
    block: Any, states: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    attended, _ = block.attention(block.layernorm_before(states), attention_mask=mask, **kwargs)
    scaled: Tensor = _drop_path(block, "drop_path1", block.lambda_1 * attended)
    return scaled + states


def _feed_as_internvl(block: Any, states: Tensor) -> Tensor:
    fed = block.lambda_2 * block.dropout(block.mlp(block.layernorm_after(states)))
    scaled: Tensor = _drop_path(block, "drop_path2", fed)
    return scaled + states


def _drop_path(block: Any, name: str, states: Tensor) -> Tensor:
    """Only Qianfan-OCR's blocks have this."""
    found: Tensor = getattr(block, name)(states) if hasattr(block, name) else states
    return found


def _attend_as_qwen(
    block: Any, states: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    return states + _attend_packed(block.attn, block.norm1(states), mask, kwargs)


def _feed_as_qwen(block: Any, states: Tensor) -> Tensor:
    fed: Tensor = block.mlp(block.norm2(states))
    return states + fed


def _attend_as_packed_clip(
    block: Any, states: Tensor, mask: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    return states + _attend_packed(block.self_attn, block.layer_norm1(states), mask, kwargs)


def _attend_packed(
    attention: Any, states: Tensor, bias: Tensor | None, kwargs: dict[str, Any]
) -> Tensor:
    """Attention of pictures in one row, which takes no mask."""
    if bias is not None:
        ends, rotation = kwargs["cu_seqlens"], kwargs.get("position_embeddings")
        return TowerAttention(attention).attend(states, bias, ends, rotation)
    attended = attention(states, **kwargs)
    found: Tensor = attended[0] if isinstance(attended, tuple) else attended
    return found


_CLIP = Halves(_attend_as_clip, _feed_as_clip)
_DINOV2 = Halves(_attend_as_dinov2, _feed_as_dinov2)
_INTERNVL = Halves(_attend_as_internvl, _feed_as_internvl)
_PACKED_CLIP = Halves(_attend_as_packed_clip, _feed_as_clip)
_PACKED = TowerKind(
    "blocks", "attn", halves=Halves(_attend_as_qwen, _feed_as_qwen), takes_mask=False, packed=True
)

TOWER_KINDS: dict[str, TowerKind] = {
    "clip_vision_model": TowerKind(classes=1, halves=_CLIP),
    "siglip_vision_model": TowerKind(halves=_CLIP),
    "janus_vision_model": TowerKind(halves=_CLIP),
    "dinov2": TowerKind("encoder.layer", "attention", classes=1, halves=_DINOV2),
    "internvl_vision": TowerKind("encoder.layer", "attention", 1, _INTERNVL, takes_mask=False),
    "qianfan_ocr_vision": TowerKind("layers", "attention", 1, _INTERNVL, takes_mask=False),
    "idefics3_vision": TowerKind(),
    "granite_docling_vision": TowerKind(),
    "smolvlm_vision": TowerKind(),
    "ovis2_vision": TowerKind("transformer.encoder.layers", "attention"),
    "pixtral": TowerKind("transformer.layers", "attention", packed=True),
    "qwen2_vl_vision": _PACKED,
    "qwen2_5_vl_vision": _PACKED,
    "qwen3_vl_vision": _PACKED,
    "qwen3_vl_moe_vision": _PACKED,
    "qwen3_5_vision": _PACKED,
    "qwen3_5_moe_vision": _PACKED,
    "qwen2_5_omni_vision_encoder": _PACKED,
    "qwen3_omni_moe_vision_encoder": _PACKED,
    "glm4v_vision": _PACKED,
    "glm4v_moe_vision": _PACKED,
    "glm_ocr_vision": _PACKED,
    "ernie4_5_vl_moe_vision": _PACKED,
    "video_llama_3_vision": TowerKind(packed=True),
    "paddleocr_vl_vision": TowerKind(
        "vision_model.encoder.layers", halves=_PACKED_CLIP, takes_mask=False, packed=True
    ),
    "cosmos3_edge_vision": TowerKind(halves=_PACKED_CLIP, takes_mask=False, packed=True),
    "kimi_k25_vision": TowerKind("layers", "attn", packed=True),
    "hunyuan_vl_vision": TowerKind("layers", packed=True),
}
"""By the ``model_type`` of the tower's configuration."""
