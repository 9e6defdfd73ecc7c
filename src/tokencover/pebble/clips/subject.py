"""Pebble for clips, as a subject of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import VideoLlavaForConditionalGeneration

from tokencover.pebble.batches import Batch, make_pack, shown
from tokencover.pebble.clips.clip import make_clip
from tokencover.pebble.clips.describing import GROUP_INDEX, GROUPS, VISUAL_TOKENS, describe_clip
from tokencover.pebble.clips.drawing import draw_clip
from tokencover.pebble.clips.growing import grow, share_tower
from tokencover.pebble.clips.processor import ClipProcessor, clip_pixels
from tokencover.pebble.clips.questions import ask
from tokencover.pebble.describing import NONE, mixing_weights
from tokencover.pebble.losses import description_loss
from tokencover.pebble.packing import tower_features
from tokencover.pebble.vocabulary import CLIP_WORDS


@dataclass(frozen=True)
class Clips:
    """A `tokencover.pebble.subject.Subject`: a Video-LLaVA that answers questions about clips.

    Attributes
    ----------
    picture_folder
        Checkpoint of the picture model to start from; by default the shipped one.
    """

    picture_folder: Path | None = None

    def start(self, seed: int) -> VideoLlavaForConditionalGeneration:
        """Model grown from the picture model."""
        return grow(seed, self.picture_folder)

    def batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """Clips with questions; pixels have shape (clips, 8, 3, 96, 96)."""
        clips = [make_clip(seed) for seed in seeds]
        labels = np.stack([describe_clip(clip) for clip in clips])
        questions = [ask(clip, kinds) for clip in clips]
        positions = shown(labels[..., GROUP_INDEX["stuff"]] == NONE, seeds, visual_tokens)
        return Batch(
            pixels=torch.stack([clip_pixels(draw_clip(clip)) for clip in clips]),
            labels=torch.from_numpy(labels),
            weights=torch.from_numpy(mixing_weights(labels, GROUPS, len(CLIP_WORDS))),
            questions=questions,
            pack=make_pack(questions, len(kinds), positions, VISUAL_TOKENS),
        )

    def vision(self, model: VideoLlavaForConditionalGeneration) -> list[nn.Module]:
        """The tower for clips and the projector."""
        return [model.model.video_tower, model.model.multi_modal_projector]

    def see(
        self, model: VideoLlavaForConditionalGeneration, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """All tokens of all frames, class tokens included, each described."""
        pixels = batch.pixels.flatten(0, 1)
        parts = model.model
        each = tower_features(parts.video_tower, parts.multi_modal_projector, pixels)
        visual = each.reshape(len(batch.pixels), VISUAL_TOKENS, -1)
        loss, told = description_loss(visual, words, batch.labels, batch.weights, GROUPS)
        return visual, loss, told

    def save(self, model: VideoLlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and tokenizer."""
        share_tower(model)
        model.save_pretrained(folder)
        ClipProcessor().save_pretrained(folder)
