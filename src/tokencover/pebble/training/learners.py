"""What the training loop trains: a model for pictures, or one for clips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration, VideoLlavaForConditionalGeneration

from tokencover.pebble.data import CLIP_GROUPS, CLIP_TOKENS
from tokencover.pebble.model import ClipProcessor, make_picture_processor
from tokencover.pebble.training.batches import Batch, make_clip_batch, make_picture_batch
from tokencover.pebble.training.clip_starting_weights import share_tower, start_clip_model
from tokencover.pebble.training.losses import compute_description_loss, compute_summary_loss
from tokencover.pebble.training.packed_questions import run_tower, see_pictures
from tokencover.pebble.training.starting_weights import start_picture_model


class Learner(Protocol):
    """A model to train, with what it learns from."""

    def start(self, seed: int) -> Any:
        """Model with the weights that training starts from."""

    def make_batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """What one step sees; see `tokencover.pebble.training.batches`."""

    def list_vision_parts(self, model: Any) -> list[nn.Module]:
        """Parts of the model that see."""

    def see(
        self, model: Any, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Visual tokens, what describing them badly costs, and how often they tell the words."""

    def save(self, model: Any, folder: Path) -> None:
        """Write the finished model with all that is needed to use it."""


@dataclass(frozen=True)
class PictureLearner:
    """A LLaVA that answers questions about scenes."""

    def start(self, seed: int) -> LlavaForConditionalGeneration:
        """Model with prepared weights."""
        return start_picture_model(seed)

    def make_batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """Scenes with questions."""
        return make_picture_batch(seeds, kinds, visual_tokens)

    def list_vision_parts(self, model: LlavaForConditionalGeneration) -> list[nn.Module]:
        """Tower and projector."""
        return [model.model.vision_tower, model.model.multi_modal_projector]

    def see(
        self, model: LlavaForConditionalGeneration, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Patches, described one by one, and the class token, which sums the picture up."""
        visual, summary = see_pictures(model, batch.pixels)
        loss, told = compute_description_loss(visual, words, batch.labels, batch.weights)
        return visual, loss + compute_summary_loss(summary, words, batch.labels), told

    def save(self, model: LlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and processor as transformers expects them."""
        model.save_pretrained(folder)
        make_picture_processor().save_pretrained(folder)


@dataclass(frozen=True)
class ClipLearner:
    """A Video-LLaVA that answers questions about clips.

    Attributes
    ----------
    picture_folder
        Checkpoint of the picture model to start from; by default the shipped one.
    """

    picture_folder: Path | None = None

    def start(self, seed: int) -> VideoLlavaForConditionalGeneration:
        """Model grown from the picture model."""
        return start_clip_model(seed, self.picture_folder)

    def make_batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """Clips with questions."""
        return make_clip_batch(seeds, kinds, visual_tokens)

    def list_vision_parts(self, model: VideoLlavaForConditionalGeneration) -> list[nn.Module]:
        """The tower for clips and the projector."""
        return [model.model.video_tower, model.model.multi_modal_projector]

    def see(
        self, model: VideoLlavaForConditionalGeneration, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """All tokens of all frames, class tokens included, each described."""
        pixels = batch.pixels.flatten(0, 1)
        parts = model.model
        each = run_tower(parts.video_tower, parts.multi_modal_projector, pixels)
        visual = each.reshape(len(batch.pixels), CLIP_TOKENS, -1)
        loss, told = compute_description_loss(
            visual, words, batch.labels, batch.weights, CLIP_GROUPS
        )
        return visual, loss, told

    def save(self, model: VideoLlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and tokenizer."""
        share_tower(model)
        model.save_pretrained(folder)
        ClipProcessor().save_pretrained(folder)
