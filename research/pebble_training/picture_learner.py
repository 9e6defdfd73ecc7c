"""A LLaVA that learns from captions and questions, from weights that know nothing.

The vision encoder first learns to see. Then the decoder learns from phrases about a few objects:
with six patches to choose from, looking things up is found within a hundred steps, and it carries
over to whole images, where from the start it is not found at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import LlavaForConditionalGeneration

from research.pebble_training.lessons import Lesson
from research.pebble_training.losses import compute_answer_loss
from research.pebble_training.packed_questions import NO_TARGET, PackedQuestions, answer_packs
from research.pebble_training.part_batches import PartBatch, make_part_batch
from research.pebble_training.picture_starting_weights import start_picture_model
from research.pebble_training.run_log import Tally
from research.pebble_training.schedules import Stage
from research.pebble_training.tower_heads import (
    Sight,
    TowerHeads,
    compute_holdings_loss,
    compute_words_loss,
    run_whole_tower,
)
from tokencover_models.pebble.model import make_picture_processor

PHRASE_WEIGHT: Final = 0.5
HOLDING_WEIGHT: Final = 0.5
HEAD_RATE: Final = 2.0


@dataclass(frozen=True)
class PictureLearner:
    """A LLaVA that answers questions about scenes; see the module."""

    def start(self, seed: int) -> LlavaForConditionalGeneration:
        """Model with random weights."""
        return start_picture_model(seed)

    def make_helpers(self, seed: int) -> nn.Module:
        """The vision encoder's heads."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return TowerHeads()

    def list_parameters(self, model: Any, helpers: nn.Module, stage: Stage) -> list[dict[str, Any]]:
        """Return the parameter groups that the stage has a learning rate for."""
        parts = model.model
        groups: list[dict[str, Any]] = []
        if stage.vision_rate:
            tower = list(parts.vision_tower.parameters())
            groups.append({"params": tower, "lr": stage.vision_rate})
            rate = stage.vision_rate * (HEAD_RATE if stage.mode == "vision" else 1)
            groups.append({"params": list(helpers.parameters()), "lr": rate})
        if stage.rate:
            decoder = [
                *parts.multi_modal_projector.parameters(),
                *parts.language_model.parameters(),
            ]
            groups.append({"params": decoder, "lr": stage.rate})
        return groups

    def compute_loss(self, model: Any, helpers: nn.Module, lesson: Lesson, tally: Tally) -> Tensor:
        """What seeing, telling and answering badly costs."""
        stage, parts = lesson.stage, model.model
        batch = make_part_batch(lesson)
        with torch.set_grad_enabled(stage.vision_rate > 0):
            sight = run_whole_tower(parts.vision_tower, batch.pixels, batch.glances)
        loss = sight.end.new_zeros(())
        if stage.vision_rate:
            loss = stage.description * _judge_tower(helpers, sight, batch, tally)
        if stage.mode != "vision":
            visual = parts.multi_modal_projector(sight.patches)
            loss = loss + _judge_texts(model, visual, batch, lesson.early_sight, tally)
        return loss

    def save(self, model: LlavaForConditionalGeneration, folder: Path) -> None:
        """Write model and processor as transformers expects them."""
        model.save_pretrained(folder)
        make_picture_processor().save_pretrained(folder)


def _judge_tower(helpers: Any, sight: Sight, batch: PartBatch, tally: Tally) -> Tensor:
    words, told = compute_words_loss(helpers, sight.patches, batch.labels)
    whole = compute_holdings_loss(helpers.compute_holdings(sight.summary), batch.holdings)
    parts = compute_holdings_loss(helpers.compute_holdings(sight.glances), batch.glanced)
    end = compute_holdings_loss(helpers.compute_final_holdings(sight.end), batch.holdings)
    for name, value in {**told, "whole": whole.item(), "parts": parts.item()}.items():
        tally.told[name] += value
    return words + HOLDING_WEIGHT * (whole + parts + end)


def _judge_texts(
    model: Any, visual: Tensor, batch: PartBatch, early_sight: bool, tally: Tally
) -> Tensor:
    places = batch.positions[..., None].expand(-1, -1, visual.shape[2])
    seen = visual[batch.owners].gather(1, places)
    packs = [batch.phrases] if batch.asked is None else [batch.phrases, batch.asked]
    logits = answer_packs(model, seen, packs, early_sight)
    loss, ends = compute_phrase_loss(logits[0], batch.phrases)
    tally.count("phrase", ends)
    if batch.asked is None:
        return loss
    answers, right = compute_answer_loss(logits[1], batch.asked)
    tally.count_answers(batch.questions, right)
    return PHRASE_WEIGHT * loss + answers


def compute_phrase_loss(logits: Tensor, pack: PackedQuestions) -> tuple[Tensor, Sequence[bool]]:
    """Cross-entropy of every word of phrases, and whether each phrase's last word is right.

    Parameters
    ----------
    logits
        Shape (parts, phrases, length, words).
    pack
        The phrases.
    """
    loss = cross_entropy(logits.flatten(0, 2), pack.targets.flatten(), ignore_index=NO_TARGET)
    there = pack.targets != NO_TARGET
    sizes = there.sum(2)
    last = (there.cumsum(2) == sizes[..., None]) & there
    right: list[bool] = (logits.argmax(3) == pack.targets)[last].tolist()
    return loss, right
