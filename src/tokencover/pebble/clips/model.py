"""The shape of the model for clips: a small but stock Video-LLaVA."""

from __future__ import annotations

from typing import Final

from transformers import VideoLlavaConfig, VideoLlavaForConditionalGeneration

from tokencover.pebble.clips.describing import VISUAL_TOKENS
from tokencover.pebble.clips.drawing import SIZE
from tokencover.pebble.model import (
    VISION_FEATURE_LAYER,
    make_generation_config,
    make_text_config,
    make_vision_config,
)
from tokencover.pebble.vocabulary import CLIP_WORD_IDS, CLIP_WORDS, IMAGE, VIDEO

LONGEST: Final = 2048


def make_clip_model() -> VideoLlavaForConditionalGeneration:
    """Make the model with transformers' own random weights; its parts are the picture model's."""
    config = VideoLlavaConfig(
        vision_config=make_vision_config(SIZE),
        text_config=make_text_config(len(CLIP_WORDS), LONGEST),
        image_token_index=CLIP_WORD_IDS[IMAGE],
        video_token_index=CLIP_WORD_IDS[VIDEO],
        video_seq_length=VISUAL_TOKENS,
        vision_feature_layer=VISION_FEATURE_LAYER,
        vision_feature_select_strategy="default",
        tie_word_embeddings=True,
    )
    model = VideoLlavaForConditionalGeneration(config)
    model.generation_config = make_generation_config()
    return model
