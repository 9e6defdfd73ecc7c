"""Pebble's questions as tasks for lmms-eval, which imports this when one of them is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from PIL import Image

from tokencover.evaluation.lmms.data import LocalTask
from tokencover.evaluation.lmms.functions import Document, Prompts, write_question
from tokencover_models.pebble.data import (
    CLIP_QUESTIONS,
    SCENE_QUESTIONS,
    draw_clip,
    draw_scene,
    list_seeds,
    make_clip,
    make_scene,
)


class PebbleQuestions(LocalTask):
    """Pebble's questions about images, drawn when they are asked for."""

    def make_documents(self, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """All kinds of questions about each scene of the test split."""
        for seed in list_seeds("test"):
            for each in SCENE_QUESTIONS.ask(make_scene(seed), None):
                yield _write_row(seed, each.kind, each.text, each.answer)


class PebbleClipQuestions(LocalTask):
    """Pebble's questions about videos, drawn when they are asked for."""

    def make_documents(self, settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """All kinds of questions about each video of the test split."""
        for seed in list_seeds("test"):
            for each in CLIP_QUESTIONS.ask(make_clip(seed), None):
                yield _write_row(seed, each.kind, each.text, each.answer)


@lru_cache(maxsize=8)
def draw_picture(seed: int) -> Image.Image:
    """Draw the image of a scene; its questions come one after the other."""
    return draw_scene(make_scene(seed))


@lru_cache(maxsize=8)
def draw_frames(seed: int) -> tuple[Image.Image, ...]:
    """Draw the frames of a video."""
    return tuple(draw_clip(make_clip(seed)))


def _write_row(seed: int, kind: str, question: str, answer: str) -> dict[str, Any]:
    return {
        "question_id": f"{seed}-{kind}",
        "scene": seed,
        "kind": kind,
        "question": question,
        "answer": answer,
    }


def show_scene(doc: Document) -> list[Any]:
    """The image of one of pebble's scenes."""
    return [draw_picture(doc["scene"])]


def write_clip_messages(
    doc: Document, lmms_eval_specific_kwargs: Prompts | None = None
) -> list[dict[str, Any]]:
    """A conversation about one of pebble's videos: its frames as a video, then the question."""
    frames = {"type": "video", "url": list(draw_frames(doc["scene"]))}
    words = {"type": "text", "text": write_question(doc, lmms_eval_specific_kwargs)}
    return [{"role": "user", "content": [frames, words]}]
