"""Pebble for pictures, as a subject of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration

from tokencover.pebble.batches import Batch, make_batch
from tokencover.pebble.losses import description_loss, summary_loss
from tokencover.pebble.model import make_model, make_processor
from tokencover.pebble.packing import visual_features
from tokencover.pebble.starting import prepare


@dataclass(frozen=True)
class Pictures:
    """A `tokencover.pebble.subject.Subject`: a LLaVA that answers questions about scenes."""

    def start(self, seed: int) -> LlavaForConditionalGeneration:
        """Model with prepared weights."""
        model = make_model()
        prepare(model, seed)
        return model

    def batch(self, seeds: Sequence[int], kinds: Sequence[str], visual_tokens: int) -> Batch:
        """Scenes with questions."""
        return make_batch(seeds, kinds, visual_tokens)

    def vision(self, model: LlavaForConditionalGeneration) -> list[nn.Module]:
        """Tower and projector."""
        return [model.model.vision_tower, model.model.multi_modal_projector]

    def see(
        self, model: LlavaForConditionalGeneration, batch: Batch, words: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, float]]:
        """Patches, described one by one, and the class token, which sums the picture up."""
        visual, summary = visual_features(model, batch.pixels)
        loss, told = description_loss(visual, words, batch.labels, batch.weights)
        return visual, loss + summary_loss(summary, words, batch.labels), told

    def save(self, model: LlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and processor as transformers expects them."""
        model.save_pretrained(folder)
        make_processor().save_pretrained(folder)
