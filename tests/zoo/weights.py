"""Seeded weights, large enough that attention is far from uniform and every visual token counts."""

from math import sqrt
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from .vocabulary import BOS, EOS, IMAGE, PAD, VIDEO, VOCABULARY_SIZE

HIDDEN = 32

GAIN = 0.7
ATTENTION_GAIN = 1.4
ATTENTION_NAMES = ("q_proj", "k_proj", "qkv")


def text_config(layers: int, **extra: Any) -> dict[str, Any]:
    """Give the settings of the tiny decoder that all families share."""
    return {
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "tie_word_embeddings": False,
        **extra,
    }


def seeded(
    model_class: type[PreTrainedModel],
    config: PreTrainedConfig,
    attn_implementation: str | dict[str, str],
    dtype: torch.dtype,
) -> PreTrainedModel:
    """Build the model and give every parameter a value that depends on its name's order alone.

    A trained model never writes an image token; a random one is kept from it when it generates.
    """
    with torch.random.fork_rng():
        make: Any = model_class._from_config
        model = make(config, attn_implementation=attn_implementation, dtype=torch.float32)
    if attn_implementation == "eager":  # of experts too: one product each, which can be counted
        model.set_experts_implementation("eager")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_value(name, parameter, generator))
    model.generation_config.suppress_tokens = [PAD, IMAGE, VIDEO]
    # Not `to`, which would make Llama 4's complex rotations real.
    model._apply(lambda each: each.to(dtype) if each.is_floating_point() else each)
    built: PreTrainedModel = model.eval()
    return built


def _value(name: str, like: Tensor, generator: torch.Generator) -> Tensor:
    noise: Tensor = torch.randn(like.shape, generator=generator)
    if "norm" in name or "ln_q" in name or "lambda" in name:
        sharper = ATTENTION_GAIN if "q_norm" in name or "k_norm" in name else 1.0
        from_zero = name.endswith("bias") or not bool(like.any())  # some norms add one themselves
        return sharper * (0.2 * noise + (0.0 if from_zero else 1.0))
    if name.endswith("bias"):
        return 0.2 * noise
    if name.endswith("A_log"):  # slow enough that sums of many decays stay small, and exact
        return 0.2 * noise - 2.0
    if like.ndim < 2 or "embed" in name:
        return noise * (0.3 if "patch" in name else 1.0)
    gain = ATTENTION_GAIN if any(part in name for part in ATTENTION_NAMES) else GAIN
    inputs = like.shape[-1] if "experts" in name else like[0].numel()
    return noise * (gain / sqrt(inputs))
