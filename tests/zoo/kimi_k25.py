"""Kimi K2.5: any resolution, patches in raster order, latent attention and experts."""

from collections.abc import Sequence

import torch
from transformers import Kimi_K25Config, Kimi_K25ForConditionalGeneration, PreTrainedModel

from . import qwen2_vl, raster_patches
from .entry import Inputs, Sample, ZooEntry
from .qwen_media import MERGE
from .raster_patches import layouts, media
from .vision_encoders import PATCH
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import seeded, text_config

VISION_WIDTH = 32


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(
        layers,
        model_type="deepseek_v3",
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=12,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=6,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=0,
    )
    del text["head_dim"]
    vision = {
        "hidden_size": VISION_WIDTH,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "patch_size": PATCH,
        "pos_emb_height": 6,
        "pos_emb_width": 6,
        "merge_kernel_size": (MERGE, MERGE),
    }
    config = Kimi_K25Config(
        vision_config=vision,
        text_config=text,
        projection_hidden_size=VISION_WIDTH,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    return seeded(Kimi_K25ForConditionalGeneration, config, attn_implementation, dtype)


def pack(samples: Sequence[Sample], text: Inputs) -> Inputs:
    packed = raster_patches.pack(samples, text)
    del packed["mm_token_type_ids"]  # its positions have one axis
    return packed


ENTRY = ZooEntry(
    name="kimi_k25",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed"),
    video_token_id=VIDEO,
    alike="llava",
)
