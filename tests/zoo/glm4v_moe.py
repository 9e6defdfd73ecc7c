"""GLM-4.5V: GLM-4V with experts."""

from dataclasses import replace

from transformers import Glm4vMoeConfig, Glm4vMoeForConditionalGeneration

from .glm4v import builder, entry

ENTRY = replace(
    entry(
        "glm4v_moe",
        builder(
            Glm4vMoeForConditionalGeneration,
            Glm4vMoeConfig,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            first_k_dense_replace=0,
        ),
    ),
    flash=False,
)
