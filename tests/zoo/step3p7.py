"""Step 3.7: convolutions pool 4 by 4 patches; windows, gated attention and experts."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel, Step3p7Config, Step3p7ForConditionalGeneration

from .single_grids import single_grids
from .vision_encoders import PATCH
from .vocabulary import IMAGE
from .weights import seeded, text_config
from .windows import WINDOW, choose_kinds

SIDE, POOL = 4, 4


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        sliding_window=WINDOW,
        layer_types=choose_kinds(layers),
        mlp_layer_types=["dense"] * (layers - 1) + ["sparse"],
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        share_expert_dim=16,
    )
    vision = {
        "hidden_size": 16,
        "mlp_ratio": 2.0,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SIDE * POOL * PATCH,
        "patch_size": PATCH,
        "max_position_embeddings": (SIDE * POOL) ** 2,
    }
    config = Step3p7Config(vision_config=vision, text_config=text, image_token_id=IMAGE)
    return seeded(Step3p7ForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = replace(
    single_grids("step3p7", build, SIDE, POOL * PATCH),
    alike="gemma3",
    flash=False,
    own_masks=True,
)
