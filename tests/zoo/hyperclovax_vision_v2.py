"""HyperCLOVA X Vision 2: the vision encoder of Qwen2.5-VL before a decoder with plain positions."""

from collections.abc import Sequence

import torch
from transformers import (
    HyperCLOVAXVisionV2Config,
    HyperCLOVAXVisionV2ForConditionalGeneration,
    PreTrainedModel,
)

from . import qwen2_vl, qwen_media
from .entry import Inputs, Sample, ZooEntry
from .qwen_media import MERGE, layouts, media, vision_config
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, tagged_chat
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    vision = vision_config(
        hidden_size=32,
        intermediate_size=48,
        out_hidden_size=24,
        window_size=2 * MERGE * PATCH,
        fullatt_block_indexes=[1],
    )
    config = HyperCLOVAXVisionV2Config(
        vision_config={**vision, "model_type": "qwen2_5_vl_vision"},
        text_config=text_config(layers, model_type="hyperclovax", attention_multiplier=0.4),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        tie_word_embeddings=False,
    )
    return seeded(HyperCLOVAXVisionV2ForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = qwen_media.pack(samples, text)
    del packed["mm_token_type_ids"]
    return packed


ENTRY = ZooEntry(
    name="hyperclovax_vision_v2",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "two_images", "text_only", "mixed", "image_and_video"),
    video_token_id=VIDEO,
    alike="llava",
)
