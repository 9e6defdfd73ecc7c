"""What is measured: a model, and inputs that its own processor made."""

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
from tokencover.images import open_picture
from tokencover.prompting import Medium, list_kinds, make_inputs
from tokencover.pruning import PromptLocator


@dataclass(frozen=True)
class PictureQuestion:
    """A question about a picture, or about the frames of a clip."""

    picture: Medium
    question: str


@dataclass(frozen=True)
class Workload:
    """A model with one batch of inputs.

    Attributes
    ----------
    name : str
        As the model was asked for: "pebble", "pebble-clips", "boulder", a folder or a hub name.
    model : Any
        As ``from_pretrained`` returns it.
    inputs : dict
        What its processor made of the questions, on the model's device.
    words : PromptLocator
        Finds the prompt words; made once, as a program that serves many requests would.
    options : mapping
        What the model was loaded with beside device and dtype.
    """

    name: str
    model: Any
    inputs: dict[str, Tensor]
    words: PromptLocator
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> Family:
        """Where the model keeps what matters."""
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
        """All other tokens of each sample, padding apart."""
        real: list[int] = self.inputs["attention_mask"].sum(-1).tolist()
        return [all_ - mine for all_, mine in zip(real, self.visual_counts, strict=True)]

    def find_prompt_words(self) -> Tensor:
        """``(b, s)`` bool, the user's own words."""
        return self.words.mask(self.inputs["input_ids"], self.visual)


def make_workload(
    name: str,
    model: Any,
    processor: Any,
    questions: Sequence[PictureQuestion],
    options: Mapping[str, Any] | None = None,
) -> Workload:
    """Let a loaded model's processor make a batch of chats with one user turn each."""
    processor.tokenizer.padding_side = "left"
    batch = make_inputs(processor, [([each.picture], each.question) for each in questions])
    inputs = dict(batch.to(model.device, dtype=model.dtype))
    workload = Workload(name, model, inputs, PromptLocator(processor), options or {})
    if 0 in workload.visual_counts:
        raise InputError("the processor put no picture into the prompt: is it the model's own?")
    return workload


def pick_drawn_questions(
    processor: Any, count: int, question: str | None = None
) -> list[PictureQuestion]:
    """Return the first drawn scenes, each with its first question or with this one."""
    scenes = get_scenes_for(list_kinds(processor))
    drawn = [scenes.draw(number, False) for number in range(count)]
    return [PictureQuestion(each.medium, question or next(iter(each.answers))) for each in drawn]


def read_own_picture(path: Path, question: str | None, count: int) -> list[PictureQuestion]:
    """The same question about a picture of the user's, as often as a batch needs."""
    if not question:
        raise InputError("say what to ask about your picture: --question 'what is this ?'")
    return [PictureQuestion(open_picture(path), question)] * count
