"""The models' shape: a small but stock LLaVA for pictures, a Video-LLaVA for clips."""

from __future__ import annotations

from typing import Final

from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    VideoLlavaConfig,
    VideoLlavaForConditionalGeneration,
)

from tokencover_models.pebble.data import (
    CLIP_TOKENS,
    FRAME_SIZE,
    PATCH,
    PICTURE_SIZE,
    PICTURE_TOKENS,
)
from tokencover_models.pebble.model.tokenizer import LONGEST_CLIP_PROMPT, LONGEST_PROMPT
from tokencover_models.pebble.vocabulary import (
    BEGIN,
    CLIP_WORD_IDS,
    CLIP_WORDS,
    END,
    IMAGE,
    PAD,
    PICTURE_WORD_IDS,
    PICTURE_WORDS,
    VIDEO,
)

MODEL_WIDTH: Final = 128
MODEL_HEADS: Final = 4
VISION_LAYERS: Final = 5
VISION_FEATURE_LAYER: Final = -2
PICTURE_BLOCKS: Final = 11
CLIP_BLOCKS: Final = 6


def make_vision_config(size: int = PICTURE_SIZE) -> CLIPVisionConfig:
    """Configuration of the vision encoder for pictures of some size."""
    return CLIPVisionConfig(
        hidden_size=MODEL_WIDTH,
        intermediate_size=4 * MODEL_WIDTH,
        projection_dim=MODEL_WIDTH,
        num_hidden_layers=VISION_LAYERS,
        num_attention_heads=MODEL_HEADS,
        image_size=size,
        patch_size=PATCH,
        hidden_act="gelu",
    )


def _make_text_config(words: int, longest: int, blocks: int) -> LlamaConfig:
    """Configuration of the decoder for so many words, sequences so long and so many blocks."""
    return LlamaConfig(
        vocab_size=words,
        hidden_size=MODEL_WIDTH,
        intermediate_size=3 * MODEL_WIDTH,
        num_hidden_layers=blocks,
        num_attention_heads=MODEL_HEADS,
        max_position_embeddings=longest,
        # Most rotary pairs turn so slowly that what a patch shows can be matched with what is
        # asked at any distance; the few fast ones carry the order of words.
        rope_parameters={"rope_type": "default", "rope_theta": 1e9},
        tie_word_embeddings=True,
        initializer_range=0.06,
        bos_token_id=PICTURE_WORD_IDS[BEGIN],
        eos_token_id=PICTURE_WORD_IDS[END],
        pad_token_id=PICTURE_WORD_IDS[PAD],
    )


def make_picture_model(blocks: int = PICTURE_BLOCKS) -> LlavaForConditionalGeneration:
    """Make the model for pictures with transformers' own random weights.

    Parameters
    ----------
    blocks
        Of the decoder.
    """
    config = LlavaConfig(
        vision_config=make_vision_config(PICTURE_SIZE),
        text_config=_make_text_config(len(PICTURE_WORDS), LONGEST_PROMPT, blocks),
        image_token_index=PICTURE_WORD_IDS[IMAGE],
        image_seq_length=PICTURE_TOKENS,
        vision_feature_layer=VISION_FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    model = LlavaForConditionalGeneration(config)
    model.generation_config = _make_generation_config()
    return model


def make_clip_model() -> VideoLlavaForConditionalGeneration:
    """Make the model for clips with transformers' own random weights."""
    config = VideoLlavaConfig(
        vision_config=make_vision_config(FRAME_SIZE),
        text_config=_make_text_config(len(CLIP_WORDS), LONGEST_CLIP_PROMPT, CLIP_BLOCKS),
        image_token_index=CLIP_WORD_IDS[IMAGE],
        video_token_index=CLIP_WORD_IDS[VIDEO],
        video_seq_length=CLIP_TOKENS,
        vision_feature_layer=VISION_FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    model = VideoLlavaForConditionalGeneration(config)
    model.generation_config = _make_generation_config()
    return model


def _make_generation_config() -> GenerationConfig:
    """How answers are generated: greedily, and never more than a few words."""
    return GenerationConfig(
        bos_token_id=PICTURE_WORD_IDS[BEGIN],
        eos_token_id=PICTURE_WORD_IDS[END],
        pad_token_id=PICTURE_WORD_IDS[PAD],
        do_sample=False,
        max_new_tokens=4,
    )
