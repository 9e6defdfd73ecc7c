"""Qwen3.5 with experts."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel, Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration

from . import qwen3_5
from .weights import seeded


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = qwen3_5.hybrid_text(
        layers,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )
    config = Qwen3_5MoeConfig(text_config=text, **qwen3_5.settings())
    return seeded(Qwen3_5MoeForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    qwen3_5.ENTRY, name="qwen3_5_moe", build=build, kinds=("single", "ragged", "text_only", "mixed")
)
