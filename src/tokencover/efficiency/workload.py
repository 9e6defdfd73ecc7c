"""What is measured: a model, and inputs from its own processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tokencover.bundled_models import get_scenes_for
from tokencover.errors import InputError
from tokencover.families import Family, family_of
from tokencover.images import open_image
from tokencover.prompting import Medium, list_kinds, make_inputs
from tokencover.pruning import PromptLocator


@dataclass(frozen=True)
class Workload:
    """A model with one batch of inputs.

    `inputs` is the processor's output on the model's device, `words` locates the prompt tokens,
    `options` are the loading options besides device and dtype.
    """

    name: str
    model: Any
    inputs: dict[str, Tensor]
    words: PromptLocator
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        """The model's family."""
        return family_of(self.model)

    @property
    def decoder(self) -> Any:
        """The text model."""
        return self.model.get_submodule(self.family.decoder)

    @property
    def visual(self) -> Tensor:
        """``(b, s)`` bool, the visual tokens."""
        ids = torch.tensor(self.family.visual_ids(self.model.config), device=self.model.device)
        return torch.isin(self.inputs["input_ids"], ids)

    @property
    def visual_counts(self) -> list[int]:
        """The visual tokens of each sample."""
        counts: list[int] = self.visual.sum(-1).tolist()
        return counts

    @property
    def other_counts(self) -> list[int]:
        """All other tokens of each sample, without padding."""
        real: list[int] = self.inputs["attention_mask"].sum(-1).tolist()
        return [all_ - mine for all_, mine in zip(real, self.visual_counts, strict=True)]

    def get_prompt_mask(self) -> Tensor:
        """Return the prompt tokens, ``(b, s)`` bool."""
        return self.words.mask(self.inputs["input_ids"], self.visual)


def build_workload(
    name: str,
    model: Any,
    processor: Any,
    questions: Sequence[tuple[Medium, str]],
    options: Mapping[str, Any] | None = None,
) -> Workload:
    """Build a batch of chats with one user turn each by a loaded model's processor."""
    processor.tokenizer.padding_side = "left"
    batch = make_inputs(processor, [([medium], question) for medium, question in questions])
    inputs = dict(batch.to(model.device, dtype=model.dtype))
    workload = Workload(name, model, inputs, PromptLocator(processor), options or {})
    if 0 in workload.visual_counts:
        raise InputError("The processor added no image to the prompt. Is it the model's own?")
    return workload


def select_drawn_questions(
    processor: Any, count: int, question: str | None = None
) -> list[tuple[Medium, str]]:
    """Return the first drawn scenes, each with its first question or with the given one."""
    scenes = get_scenes_for(list_kinds(processor))
    drawn = [scenes.draw(number, False) for number in range(count)]
    return [(each.medium, question or next(iter(each.answers))) for each in drawn]


def load_own_image(path: Path, question: str | None, count: int) -> list[tuple[Medium, str]]:
    """Return one question about the user's image, `count` times."""
    if not question:
        raise InputError("Ask a question about your image: --question 'what is this ?'")
    return [(open_image(path), question)] * count
