"""Aria: learned queries read the image, so its tokens have a number but no place."""

import torch
from transformers import AriaConfig, AriaForConditionalGeneration, PreTrainedModel

from .single_grids import single_grids
from .vision_encoders import PATCH, siglip_encoder
from .vocabulary import IMAGE
from .weights import seeded, text_config

QUERIES = 9


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers, intermediate_size=16, moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1
    )
    config = AriaConfig(
        vision_config=siglip_encoder(QUERIES, "idefics3_vision"),
        text_config=text,
        projector_patch_to_query_dict={QUERIES: QUERIES},
        image_token_index=IMAGE,
    )
    config._experts_implementation = "eager"  # what PyTorch's counter of operations can see
    return seeded(AriaForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = single_grids("aria", build, (1, QUERIES), PATCH)
