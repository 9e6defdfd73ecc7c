"""PaddleOCR-VL: any resolution, patches in raster order, a projector that folds them."""

import torch
from transformers import PaddleOCRVLConfig, PaddleOCRVLForConditionalGeneration, PreTrainedModel

from . import qwen2_vl
from .entry import ZooEntry
from .raster_patches import layouts, media, pack
from .vision_encoders import siglip_encoder
from .vocabulary import IMAGE, VIDEO, VISION_END, VISION_START, tagged_chat
from .weights import seeded, text_config


def build(
    attn_implementation: str = "sdpa", layers: int = 5, dtype: torch.dtype = torch.float32
) -> PreTrainedModel:
    text = text_config(layers, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    text["rope_parameters"] = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": [4, 2, 2],
    }
    config = PaddleOCRVLConfig(
        vision_config=siglip_encoder(6, "paddleocr_vl_vision"),
        text_config=text,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    return seeded(PaddleOCRVLForConditionalGeneration, config, attn_implementation, dtype)


ENTRY = ZooEntry(
    name="paddleocr_vl",
    build=build,
    chat=tagged_chat,
    write=qwen2_vl.write,
    media=media,
    pack=pack,
    layouts=layouts,
    kinds=("single", "ragged", "text_only", "mixed"),
    video_token_id=VIDEO,
    alike="qwen2_vl",
)
