"""Checkpoints with random weights, small enough to be made on the fly; real classes throughout.

Heads are 32 wide, which is the least that vLLM's attention on a CPU takes. The tokenizer knows
bytes, so it can read any text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from random_llava import CLIP_TOWER, LLAVA_TEMPLATE, describe_text, make_tokenizer, save

QWEN_TOKENS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif part['type'] == 'text' %}"
    "{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_llava_next(folder: Path) -> None:
    """LLaVA-Next: a base view of 64 tokens, and tiles with newlines."""
    tokenizer = make_tokenizer(("<image>",), LLAVA_TEMPLATE)
    grids = [[32, 64], [64, 32], [64, 64]]
    pictures = LlavaNextImageProcessor(
        size={"shortest_edge": 32},
        crop_size={"height": 32, "width": 32},
        image_grid_pinpoints=grids,
    )
    processor = LlavaNextProcessor(
        image_processor=pictures,
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        chat_template=LLAVA_TEMPLATE,
        num_additional_image_tokens=1,
    )
    config = LlavaNextConfig(
        text_config=describe_text("llama", len(tokenizer)),
        vision_config=CLIP_TOWER,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_grid_pinpoints=grids,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )
    save(folder, LlavaNextForConditionalGeneration(config), processor)


def describe_qwen(tokenizer: Any) -> dict[str, Any]:
    """Ids of the tokens that stand for images."""
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}


def rotate(*sections: int, **more: Any) -> dict[str, Any]:
    """Settings of M-RoPE."""
    return {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": list(sections),
        **more,
    }


def make_qwen2(folder: Path) -> None:
    """Qwen2-VL."""
    tokenizer = make_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    config = Qwen2VLConfig(
        text_config=describe_text(
            "qwen2_vl_text", len(tokenizer), rope_parameters=rotate(4, 6, 6)
        ),
        vision_config={
            "depth": 2, "embed_dim": 64, "num_heads": 2, "hidden_size": 64, "mlp_ratio": 2,
            "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2,
        },
        **describe_qwen(tokenizer),
        tie_word_embeddings=False,
    )  # fmt: skip
    processor = Qwen2VLProcessor(
        image_processor=make_qwen_pictures(4),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(patch_size=4, merge_size=2),
        chat_template=QWEN_TEMPLATE,
    )
    save(folder, Qwen2VLForConditionalGeneration(config), processor)


def make_qwen25(folder: Path) -> None:
    """Qwen2.5-VL, whose vision encoder attends in windows."""
    tokenizer = make_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    config = Qwen2_5_VLConfig(
        text_config=describe_text(
            "qwen2_5_vl_text", len(tokenizer), rope_parameters=rotate(4, 6, 6)
        ),
        vision_config={
            "depth": 2, "hidden_size": 64, "num_heads": 2, "intermediate_size": 96,
            "out_hidden_size": 64, "patch_size": 4, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "window_size": 16, "fullatt_block_indexes": [1],
            "tokens_per_second": 2,
        },
        **describe_qwen(tokenizer),
        tie_word_embeddings=False,
    )  # fmt: skip
    processor = Qwen2_5_VLProcessor(
        image_processor=make_qwen_pictures(4),
        tokenizer=tokenizer,
        video_processor=Qwen2VLVideoProcessor(patch_size=4, merge_size=2),
        chat_template=QWEN_TEMPLATE,
    )
    save(folder, Qwen2_5_VLForConditionalGeneration(config), processor)


def make_qwen3(folder: Path) -> None:
    """Qwen3-VL, with two DeepStack levels."""
    tokenizer = make_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    config = Qwen3VLConfig(
        text_config=describe_text(
            "qwen3_vl_text",
            len(tokenizer),
            rope_parameters=rotate(6, 5, 5, mrope_interleaved=True),
        ),
        vision_config={
            "depth": 3, "hidden_size": 64, "num_heads": 2, "intermediate_size": 96,
            "out_hidden_size": 64, "patch_size": 4, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        **describe_qwen(tokenizer),
        tie_word_embeddings=False,
    )  # fmt: skip
    processor = Qwen3VLProcessor(
        image_processor=make_qwen_pictures(4),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(patch_size=4, merge_size=2),
        chat_template=QWEN_TEMPLATE,
    )
    save(folder, Qwen3VLForConditionalGeneration(config), processor)


def make_qwen_pictures(patch: int) -> Any:
    """Images of 16 to 100 tokens."""
    return Qwen2VLImageProcessor(
        patch_size=patch,
        merge_size=2,
        temporal_patch_size=2,
        size={"shortest_edge": 16 * 64, "longest_edge": 100 * 64},
    )


MAKERS: dict[str, Callable[[Path], None]] = {
    "llava_next": make_llava_next,
    "qwen2_vl": make_qwen2,
    "qwen2_5_vl": make_qwen25,
    "qwen3_vl": make_qwen3,
}


def load_pair(folder: Path) -> tuple[Any, Any]:
    """Model and processor, as transformers loads them."""
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return model, AutoProcessor.from_pretrained(folder)
