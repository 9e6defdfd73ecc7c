"""Tiny vision encoders that several families share."""

from typing import Any

PATCH = 4


def clip_encoder(side: int) -> dict[str, Any]:
    """A CLIP vision encoder (class token first) for images of ``side * side`` patches."""
    return {
        "model_type": "clip_vision_model",
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": side * PATCH,
        "patch_size": PATCH,
        "projection_dim": 16,
    }


def siglip_encoder(side: int, model_type: str = "siglip_vision_model") -> dict[str, Any]:
    """A SigLIP vision encoder (no class token) for images of ``side * side`` patches."""
    return {
        "model_type": model_type,
        "hidden_size": 24,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": side * PATCH,
        "patch_size": PATCH,
    }
