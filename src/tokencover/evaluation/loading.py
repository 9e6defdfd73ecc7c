"""Models that answer questions about pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tokencover.evaluation.task import Example
from tokencover.loading import load


@dataclass(frozen=True)
class VisionLanguageModel:
    """A model with its processor.

    Attributes
    ----------
    name : str
        As it was asked for: "pebble", a folder or a hub name.
    model, processor : Any
        As ``from_pretrained`` returns them; the tokenizer pads on the left.
    """

    name: str
    model: Any
    processor: Any

    def inputs(self, examples: Sequence[Example]) -> Any:
        """A batch of chats with one user turn each, ready for `generate`."""
        texts = [self._chat(example) for example in examples]
        pictures = [list(example.pictures) for example in examples]
        shown = pictures if any(pictures) else None
        batch = self.processor(images=shown, text=texts, padding=True, return_tensors="pt")
        return batch.to(self.model.device)

    def answers(self, inputs: Any, *, max_new_tokens: int = 16) -> list[str]:
        """Greedy answers to a batch."""
        with torch.inference_mode():
            tokens = self.model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False)
        new = tokens[:, inputs["input_ids"].shape[1] :]
        texts: list[str] = self.processor.batch_decode(new, skip_special_tokens=True)
        return [text.strip() for text in texts]

    def _chat(self, example: Example) -> str:
        content = [{"type": "image"} for _ in example.pictures]
        turn = {
            "role": "user",
            "content": [*content, {"type": "text", "text": example.question}],
        }
        text: str = self.processor.apply_chat_template([turn], add_generation_prompt=True)
        return text


def load_model(
    name: str, *, device: str | None = None, dtype: str | None = None
) -> VisionLanguageModel:
    """Load a model by name; see `tokencover.loading.load`."""
    model, processor = load(name, device=device, dtype=dtype)
    processor.tokenizer.padding_side = "left"
    return VisionLanguageModel(name, model, processor)
