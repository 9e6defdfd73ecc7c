"""Images and questions for the tiny families, as text and as chats."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from tests_vllm.comparing import Asked

SIZES = ((64, 48), (40, 72), (56, 56))


@dataclass(frozen=True)
class Question:
    """One question, and which of the images it is about."""

    text: str
    shown: tuple[int, ...]

    @property
    def pictures(self) -> tuple[Image.Image, ...]:
        """The images themselves."""
        return tuple(draw(each, *SIZES[each]) for each in self.shown)


QUESTIONS = (
    Question("What is in the image?", (0,)),
    Question("Is there a red ball at the left?", (1,)),
    Question("How many birds fly?", (2,)),
    Question("Which one is larger?", (0, 1)),
    Question("Is it day?", (0,)),
)


@cache
def draw(seed: int, width: int, height: int) -> Image.Image:
    """Smooth spots."""
    small = np.random.default_rng(seed).integers(0, 255, (height // 8, width // 8, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def write_prompts(processor: Any) -> list[Asked]:
    """All questions, as a model's own template writes them."""
    prompts = []
    for each in QUESTIONS:
        content = [{"type": "image"}] * len(each.shown) + [{"type": "text", "text": each.text}]
        chat = [{"role": "user", "content": content}]
        text = processor.apply_chat_template(chat, add_generation_prompt=True)
        prompts.append(Asked(each.pictures, text))
    return prompts
