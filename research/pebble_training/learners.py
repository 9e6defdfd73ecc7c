"""What the training loop trains; here models that start by describing patches with word vectors.

The model for videos does, and the look-up model that it grows from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration, VideoLlavaForConditionalGeneration

from research.pebble_training.batches import Batch, make_clip_batch, make_picture_batch
from research.pebble_training.clip_starting_weights import share_tower, start_clip_model
from research.pebble_training.lessons import Lesson
from research.pebble_training.lookup_starting_weights import start_lookup_model
from research.pebble_training.losses import (
    compute_answer_loss,
    compute_description_loss,
    compute_summary_loss,
)
from research.pebble_training.packed_questions import (
    answer_questions,
    encode_images,
    encode_videos,
)
from research.pebble_training.patch_labels import CLIP_GROUPS
from research.pebble_training.run_log import Tally
from research.pebble_training.schedules import Stage
from tokencover_models.pebble.model import ClipProcessor, make_picture_processor

NOISE: Final = 0.1
WORD_RATE: Final = 0.3


class Learner(Protocol):
    """A model to train, with what it learns from."""

    def start(self, seed: int) -> Any:
        """Model with the weights that training starts from."""

    def make_helpers(self, seed: int) -> nn.Module:
        """Parts that only training needs."""

    def list_parameters(self, model: Any, helpers: nn.Module, stage: Stage) -> list[dict[str, Any]]:
        """What a stage trains, as an optimiser wants it: groups with their peak rates."""

    def compute_loss(self, model: Any, helpers: nn.Module, lesson: Lesson, tally: Tally) -> Tensor:
        """What one process minimises in one step."""

    def save(self, model: Any, folder: Path) -> None:
        """Write the finished model with all that is needed to use it."""


class DescribingLearner(ABC):
    """A model whose patches are described by word vectors, and whose decoder starts from those."""

    @abstractmethod
    def make_batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """What one step sees; see `research.pebble_training.batches`."""

    @abstractmethod
    def list_vision_parts(self, model: Any) -> list[nn.Module]:
        """Parts of the model that see."""

    @abstractmethod
    def see(
        self, model: Any, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Visual tokens, what describing them badly costs, and how often they tell the words."""

    def make_helpers(self, _: int) -> nn.Module:
        """None are needed."""
        return nn.Module()

    def list_parameters(self, model: Any, _: nn.Module, stage: Stage) -> list[dict[str, Any]]:
        """Vision, decoder and word vectors, each in the stages that train it."""
        parts = self.list_vision_parts(model)
        vision = [parameter for part in parts for parameter in part.parameters()]
        words = model.get_input_embeddings().weight
        decoder = [p for p in model.model.language_model.parameters() if p is not words]
        groups: list[dict[str, Any]] = []
        if stage.mode != "words":
            groups.append({"params": vision, "lr": stage.vision_rate})
        if stage.mode != "vision":
            groups.append({"params": decoder, "lr": stage.rate})
        if stage.mode == "joint":
            groups.append({"params": [words], "lr": WORD_RATE * stage.rate})
        return groups

    def compute_loss(self, model: Any, _: nn.Module, lesson: Lesson, tally: Tally) -> Tensor:
        """What describing and answering badly costs."""
        stage = lesson.stage
        batch = self.make_batch(lesson.seeds, lesson.kinds, lesson.visual_tokens)
        words: Tensor = model.get_input_embeddings().weight.detach()
        if stage.mode == "words":
            visual = batch.weights @ words
            rng = torch.Generator().manual_seed(lesson.seeds[0])
            visual = visual + NOISE * torch.randn(visual.shape, generator=rng)
            return _compute_answers_loss(model, batch, visual, lesson.early_sight, tally)
        visual, loss, told = self.see(model, batch, words)
        for name, value in told.items():
            tally.told[name] += value
        if stage.mode == "vision":
            return loss
        answers = _compute_answers_loss(model, batch, visual, lesson.early_sight, tally)
        return loss * stage.description + answers


def _compute_answers_loss(
    model: Any, batch: Batch, visual: Tensor, early_sight: bool, tally: Tally
) -> Tensor:
    places = batch.pack.positions
    seen = visual.gather(1, places[..., None].expand(-1, -1, visual.shape[2]))
    logits = answer_questions(model, seen, batch.pack, early_sight)
    loss, right = compute_answer_loss(logits, batch.pack)
    tally.count_answers(batch.questions, right)
    return loss


@dataclass(frozen=True)
class LookupLearner(DescribingLearner):
    """A LLaVA with prepared look-up heads, which the model for videos starts from."""

    def start(self, seed: int) -> LlavaForConditionalGeneration:
        """Model with prepared weights."""
        return start_lookup_model(seed)

    def make_batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """Scenes with questions."""
        return make_picture_batch(seeds, kinds, visual_tokens)

    def list_vision_parts(self, model: LlavaForConditionalGeneration) -> list[nn.Module]:
        """Vision encoder and projector."""
        return [model.model.vision_tower, model.model.multi_modal_projector]

    def see(
        self, model: LlavaForConditionalGeneration, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Patches, described one by one, and the class token, which sums the image up."""
        visual, summary = encode_images(model, batch.pixels)
        loss, told = compute_description_loss(visual, words, batch.labels, batch.weights)
        return visual, loss + compute_summary_loss(summary, words, batch.labels), told

    def save(self, model: LlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and processor as transformers expects them."""
        model.save_pretrained(folder)
        make_picture_processor().save_pretrained(folder)


@dataclass(frozen=True)
class ClipLearner(DescribingLearner):
    """A Video-LLaVA that answers questions about videos.

    Attributes
    ----------
    lookup_folder
        Checkpoint of the look-up model to start from.
    """

    lookup_folder: Path

    def start(self, seed: int) -> VideoLlavaForConditionalGeneration:
        """Model grown from the look-up model."""
        return start_clip_model(seed, self.lookup_folder)

    def make_batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """Videos with questions."""
        return make_clip_batch(seeds, kinds, visual_tokens)

    def list_vision_parts(self, model: VideoLlavaForConditionalGeneration) -> list[nn.Module]:
        """The vision encoder for videos and the projector."""
        return [model.model.video_tower, model.model.multi_modal_projector]

    def see(
        self, model: VideoLlavaForConditionalGeneration, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """All tokens of all frames, class tokens included, each described."""
        visual = encode_videos(model, batch.pixels)
        loss, told = compute_description_loss(
            visual, words, batch.labels, batch.weights, CLIP_GROUPS
        )
        return visual, loss, told

    def save(self, model: VideoLlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and tokenizer."""
        share_tower(model)
        model.save_pretrained(folder)
        ClipProcessor().save_pretrained(folder)
