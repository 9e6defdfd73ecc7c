"""Models that answer questions about pictures and clips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.evaluation.task import Example, Task
from tokencover.loading import load
from tokencover.prompting import check_taken, make_inputs


@dataclass(frozen=True)
class VisionLanguageModel:
    """A model with its processor.

    Attributes
    ----------
    name : str
        As it was asked for: "pebble", "pebble-clips", a folder or a hub name.
    model, processor : Any
        As ``from_pretrained`` returns them; the tokenizer pads on the left.
    """

    name: str
    model: Any
    processor: Any

    def check(self, tasks: Iterable[Task]) -> None:
        """Refuse tasks that show what the model does not take."""
        for task in tasks:
            asked = f"{task.name} cannot be asked of {self.name!r}"
            check_taken(self.processor, task.shows, asked)

    def inputs(self, examples: Sequence[Example]) -> Any:
        """A batch of chats with one user turn each, ready for `generate`."""
        prompts = [(example.media, example.question) for example in examples]
        return make_inputs(self.processor, prompts).to(self.model.device)

    def answers(self, inputs: Any, *, max_new_tokens: int = 16) -> list[str]:
        """Greedy answers to a batch."""
        with torch.inference_mode():
            tokens = self.model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
        new = tokens[:, inputs["input_ids"].shape[1] :]
        texts: list[str] = self.processor.batch_decode(new, skip_special_tokens=True)
        return [text.strip() for text in texts]


def load_model(
    name: str, *, device: str | None = None, dtype: str | None = None
) -> VisionLanguageModel:
    """Load a model by name; see `tokencover.loading.load`."""
    model, processor = load(name, device=device, dtype=dtype)
    processor.tokenizer.padding_side = "left"
    return VisionLanguageModel(name, model, processor)
