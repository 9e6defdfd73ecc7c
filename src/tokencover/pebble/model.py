"""Pebble's shape: a small but stock LLaVA, and its processor."""

from __future__ import annotations

from typing import Final

from transformers import (
    CLIPVisionConfig,
    GenerationConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tokencover.pebble.drawing import SIZE
from tokencover.pebble.scene import GRID, PATCH
from tokencover.pebble.tokenizer import CHAT_TEMPLATE, LONGEST, make_tokenizer
from tokencover.pebble.vocabulary import BEGIN, END, IMAGE, PAD, WORD_IDS, WORDS

WIDTH: Final = 128
HEADS: Final = 4
VISION_LAYERS: Final = 5
VISION_FEATURE_LAYER: Final = -2
BLOCKS: Final = 6
VISUAL_TOKENS: Final = GRID * GRID


def make_vision_config(size: int) -> CLIPVisionConfig:
    """Configuration of the tower for pictures of some size."""
    return CLIPVisionConfig(
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        projection_dim=WIDTH,
        num_hidden_layers=VISION_LAYERS,
        num_attention_heads=HEADS,
        image_size=size,
        patch_size=PATCH,
        hidden_act="gelu",
    )


def make_text_config(words: int, longest: int) -> LlamaConfig:
    """Configuration of the decoder for so many words and sequences so long."""
    return LlamaConfig(
        vocab_size=words,
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS,
        max_position_embeddings=longest,
        # Most rotary pairs turn so slowly that what a patch shows can be matched with what is
        # asked at any distance; the few fast ones carry the order of words.
        rope_parameters={"rope_type": "default", "rope_theta": 1e9},
        tie_word_embeddings=True,
        initializer_range=0.06,
        bos_token_id=WORD_IDS[BEGIN],
        eos_token_id=WORD_IDS[END],
        pad_token_id=WORD_IDS[PAD],
    )


def make_config() -> LlavaConfig:
    """Configuration of the model."""
    return LlavaConfig(
        vision_config=make_vision_config(SIZE),
        text_config=make_text_config(len(WORDS), LONGEST),
        image_token_index=WORD_IDS[IMAGE],
        image_seq_length=VISUAL_TOKENS,
        vision_feature_layer=VISION_FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )


def make_model() -> LlavaForConditionalGeneration:
    """Make the model with transformers' own random weights."""
    model = LlavaForConditionalGeneration(make_config())
    model.generation_config = make_generation_config()
    return model


def make_generation_config() -> GenerationConfig:
    """How answers are generated: greedily, and never more than a few words."""
    return GenerationConfig(
        bos_token_id=WORD_IDS[BEGIN],
        eos_token_id=WORD_IDS[END],
        pad_token_id=WORD_IDS[PAD],
        do_sample=False,
        max_new_tokens=4,
    )


def make_processor() -> LlavaProcessor:
    """Make the processor: pictures to 192 x 192, words to tokens, 576 places for the picture."""
    pictures = CLIPImageProcessorPil(
        size={"height": SIZE, "width": SIZE},
        crop_size={"height": SIZE, "width": SIZE},
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.25, 0.25, 0.25],
    )
    return LlavaProcessor(
        image_processor=pictures,
        tokenizer=make_tokenizer(),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )
