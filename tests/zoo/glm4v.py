"""GLM-4V and what is built like it: the Qwens' images, in another decoder."""

from typing import Any

import torch
from transformers import Glm4vConfig, Glm4vForConditionalGeneration, PreTrainedModel

from . import qwen2_vl
from .entry import Build, ZooEntry
from .qwen_media import layouts, vision_config
from .qwen_media import media as qwen_media
from .qwen_media import pack as pack_images
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import HIDDEN, seeded, text_config

SOFTER = ("post_self_attn_layernorm.weight", "post_mlp_layernorm.weight", "q_proj.weight")
"""What the norms after attention and feed-forward nets make of rounding is kept small by these."""


def builder(model_class: Any, config_class: Any, **text: Any) -> Build:
    """Make the builder of one of the classes; `text` are settings of its decoder alone."""

    def build(
        attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
    ) -> PreTrainedModel:
        settings = text_config(
            layers,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [4, 2, 2],
                "partial_rotary_factor": 1.0,
            },
            **text,
        )
        vision = vision_config(
            depth=2, hidden_size=32, intermediate_size=48, out_hidden_size=HIDDEN, image_size=32
        )
        config = config_class(
            vision_config=vision,
            text_config=settings,
            image_token_id=IMAGE,
            video_token_id=VIDEO,
            image_start_token_id=VISION_START,
            image_end_token_id=VISION_END,
        )
        model = seeded(model_class, config, attn_implementation, dtype)
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if parameter_name.endswith(SOFTER):
                    parameter.mul_(0.5)
                elif parameter_name.endswith("merger.down_proj.weight"):
                    parameter.mul_(5)
        return model

    return build


def entry(name: str, build: Build) -> ZooEntry:
    """Make the entry of one of the classes."""
    return ZooEntry(
        name=name,
        build=build,
        chat=tagged_chat,
        write=qwen2_vl.write,
        media=qwen_media,
        pack=pack_images,
        layouts=layouts,
        kinds=("single", "ragged", "text_only", "mixed"),
        video_token_id=VIDEO,
        alike="qwen2_vl",
    )


ENTRY = entry("glm4v", builder(Glm4vForConditionalGeneration, Glm4vConfig))
