"""Makes of vision towers whose blocks are known, and how each attention makes queries and keys."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tokencover.errors import InputError


@dataclass(frozen=True, slots=True)
class Halves:
    """The two halves of a tower block, between which tokens can be merged.

    Attributes
    ----------
    attend : callable
        ``attend(block, states, attention_mask, kwargs)`` gives states after attention.
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


_CLIP = Halves(_attend_as_clip, _feed_as_clip)
_DINOV2 = Halves(_attend_as_dinov2, _feed_as_dinov2)
_INTERNVL = Halves(_attend_as_internvl, _feed_as_internvl)
_PACKED = TowerKind("blocks", "attn", packed=True)

TOWER_KINDS: dict[str, TowerKind] = {
    "clip_vision_model": TowerKind(classes=1, halves=_CLIP),
    "siglip_vision_model": TowerKind(halves=_CLIP),
    "janus_vision_model": TowerKind(halves=_CLIP),
    "dinov2": TowerKind("encoder.layer", "attention", classes=1, halves=_DINOV2),
    "internvl_vision": TowerKind("encoder.layer", "attention", 1, _INTERNVL, takes_mask=False),
    "qianfan_ocr_vision": TowerKind("layers", "attention", 1, _INTERNVL, takes_mask=False),
    "idefics3_vision": TowerKind(),
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
    "paddleocr_vl_vision": TowerKind("vision_model.encoder.layers", packed=True),
    "cosmos3_edge_vision": TowerKind(packed=True),
    "kimi_k25_vision": TowerKind("layers", "attn", packed=True),
    "hunyuan_vl_vision": TowerKind("layers", packed=True),
}
"""By the ``model_type`` of the tower's configuration."""


class TowerAttention:
    """The attention of one tower block, whose queries and keys are those of some of its parts.

    Parameters
    ----------
    module : nn.Module
        The attention.

    Raises
    ------
    InputError
        If it has no parts that are known.
    """

    def __init__(self, module: Any) -> None:
        self.module: nn.Module = module
        self.parts = _find_parts(module)
        self.scaling = float(module.scaling if hasattr(module, "scaling") else module.scale)
        heads = getattr(module, "num_heads", None)
        self.heads = int(module.num_attention_heads if heads is None else heads)

    def find_projected(self, outputs: Mapping[str, Tensor], rotation: Any) -> dict[str, Tensor]:
        """Queries "q" and keys "k", ``(tokens, heads, head_dim)``, from the outputs of its parts.

        Parameters
        ----------
        outputs : Mapping
            Of the modules in `parts`, by their names there.
        rotation : tuple of Tensor or None
            The tables by which the attention was told to rotate them.
        """
        if "qkv" in outputs:
            wide = outputs["qkv"]
            three = wide.reshape(-1, 3, self.heads, wide.shape[-1] // (3 * self.heads))
            queries, keys = three[:, 0], three[:, 1]
        else:
            queries, keys = (self._split_heads(outputs[name]) for name in ("q", "k"))
        if rotation is not None:
            queries, keys = _rotate(self.module, queries, keys, rotation)
        return {"q": queries, "k": keys}

    def count_tokens(self, outputs: Mapping[str, Tensor]) -> int:
        """How many tokens it had when its parts gave these outputs."""
        if "qkv" in outputs:
            return outputs["qkv"][..., 0].numel()
        return len(self._split_heads(outputs["q"]))

    def cut_crops(self, output: Tensor, crops: int) -> Tensor:
        """The output of a part, of crops of one length, as ``(crops, m, heads * head_dim)``."""
        found: Tensor = self._split_heads(output).flatten(1).unflatten(0, (crops, -1))
        return found

    def _split_heads(self, output: Tensor) -> Tensor:
        """From ``(..., heads * head_dim)``, or already apart, to ``(tokens, heads, head_dim)``."""
        apart = output.shape[-2:] == (self.heads, self._head_dim)
        return output.flatten(0, -3) if apart else output.reshape(-1, self.heads, self._head_dim)

    @property
    def _head_dim(self) -> int:
        module: Any = self.module
        found: int = module.head_dim
        return found


def _find_parts(module: nn.Module) -> dict[str, nn.Module]:
    """The modules whose outputs are the queries and keys, or all three together."""
    parts = dict(module.named_children())
    found = {}
    for letter in ("q", "k"):
        norm = parts.get(f"{letter}_norm")
        if norm is None or isinstance(norm, nn.Identity):
            norm = parts.get(f"{letter}_proj", parts.get(letter))
        if norm is not None:
            found[letter] = norm
    if len(found) < 2 and "qkv" in parts:
        return {"qkv": parts["qkv"]}
    if len(found) < 2:
        raise InputError(
            f"the vision tower's {type(module).__name__} has no parts that are known to make "
            "queries and keys: use a method that acts in the decoder, for example tc.MoB."
        )
    return found


def _rotate(
    module: nn.Module, queries: Tensor, keys: Tensor, rotation: Any
) -> tuple[Tensor, Tensor]:
    """Rotate ``(tokens, heads, head_dim)`` by the function of the tower's own file."""
    own: Any = sys.modules[type(module).__module__]
    cosines, sines = rotation
    found: tuple[Tensor, Tensor]
    if hasattr(own, "apply_rotary_pos_emb_vision"):
        found = own.apply_rotary_pos_emb_vision(queries, keys, cosines, sines)
        return found
    by_head = (queries.transpose(0, 1), keys.transpose(0, 1))
    found = own.apply_rotary_pos_emb(*by_head, cosines, sines, unsqueeze_dim=0)
    return found[0].transpose(0, 1), found[1].transpose(0, 1)
