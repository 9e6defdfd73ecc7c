"""Sounds beside images, as the Qwen Omni thinkers take them: one sound after each image."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from . import qwen2_vl, qwen_media
from .entry import Inputs, Medium, Sample, noise
from .vocabulary import TILE_TAGS, VISION_END, VISION_START, Ids

MEL_BINS, SOUND_TOKENS = 8, 3
AUDIO_START, AUDIO_END, AUDIO = TILE_TAGS[:3]
MARKS: dict[str, Any] = {
    "audio_start_token_id": AUDIO_START,
    "audio_end_token_id": AUDIO_END,
    "vision_start_token_id": VISION_START,
    "vision_end_token_id": VISION_END,
}


def audio_config(**extra: int) -> dict[str, int]:
    """Give the settings of a tiny audio vision encoder that both thinkers share."""
    return {
        "num_mel_bins": MEL_BINS,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "d_model": 16,
        "n_window": 16,
        "max_source_positions": 32,
        **extra,
    }


def keep_silent(model: PreTrainedModel) -> PreTrainedModel:
    """Keep a random model from writing marks of sounds and images, by which it counts them."""
    settings: Any = model.generation_config
    settings.suppress_tokens += [AUDIO, AUDIO_START, AUDIO_END, VISION_START]
    return model


def write(medium: Medium) -> Ids:
    sound = [AUDIO_START, *[AUDIO] * SOUND_TOKENS, AUDIO_END]
    return [*qwen2_vl.write(medium), *sound]


def pack(samples: Sequence[Sample], text: Inputs, frames_per_token: int) -> Inputs:
    """Add sounds of one length: the encoding of padding depends on the batch."""
    packed = qwen_media.pack(samples, text)
    del packed["mm_token_type_ids"]  # the thinkers find images by their tokens
    if "video_grid_thw" in packed:
        packed["video_second_per_grid"] = torch.full((len(packed["video_grid_thw"]),), 0.5)
    frames = SOUND_TOKENS * frames_per_token
    sounds = [
        noise(100 * len(sample.ids) + number, MEL_BINS, frames)
        for sample in samples
        for number, _ in enumerate(sample.media)
    ]
    if sounds:
        packed["input_features"] = torch.stack(sounds)
        packed["feature_attention_mask"] = torch.ones(len(sounds), frames, dtype=torch.long)
    return packed
