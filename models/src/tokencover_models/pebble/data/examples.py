"""The offline benchmark: pictures and clips with questions, in fixed splits that share no scene."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

from tokencover_models.pebble.data.clip import make_clip
from tokencover_models.pebble.data.clip_questions import CLIP_QUESTIONS
from tokencover_models.pebble.data.drawing import draw_clip, draw_scene
from tokencover_models.pebble.data.questions import QuestionSet, SceneLike
from tokencover_models.pebble.data.scene import make_scene
from tokencover_models.pebble.data.scene_questions import SCENE_QUESTIONS
from tokencover_models.pebble.data.splits import list_seeds


@dataclass(frozen=True, kw_only=True)
class PebbleExample:
    """One question about one scene, or about one clip.

    Attributes
    ----------
    question
        The words to ask.
    answer
        The one right word.
    kind
        Type of the question, one of the kinds of its `QuestionSet`.
    family
        ``"fine"`` or ``"coarse"``.
    scene_id
        Seed of the scene; examples of one scene are not independent, so statistics must cluster
        by it.
    """

    question: str
    answer: str
    kind: str
    family: str
    scene_id: int


@dataclass(frozen=True, kw_only=True)
class PictureExample(PebbleExample):
    """One question about one picture.

    Attributes
    ----------
    picture
        RGB, 192 x 192; questions about one scene share it.
    """

    picture: Image.Image


@dataclass(frozen=True, kw_only=True)
class ClipExample(PebbleExample):
    """One question about one clip.

    Attributes
    ----------
    frames
        Eight, RGB, 96 x 96; questions about one clip share them.
    """

    frames: tuple[Image.Image, ...]


def make_examples(
    split: str, scenes: int | None = None, kinds: Sequence[str] | None = None, first: int = 0
) -> Iterator[PictureExample]:
    """Go through a split, one question of each kind about every scene.

    Parameters
    ----------
    split
        ``"test"`` to report, ``"validation"`` to choose settings, ``"train"`` to train.
    scenes
        How many scenes, from the first; by default all of them.
    kinds
        Which kinds of questions; by default all of them.
    first
        Number of the first scene.
    """
    for seed in list_seeds(split, scenes, first):
        scene = make_scene(seed)
        picture = draw_scene(scene)
        for fields in _ask_all(SCENE_QUESTIONS, scene, kinds):
            yield PictureExample(picture=picture, **fields)


def make_clip_examples(
    split: str, clips: int | None = None, kinds: Sequence[str] | None = None, first: int = 0
) -> Iterator[ClipExample]:
    """Go through a split of clips; parameters as in `make_examples`."""
    for seed in list_seeds(split, clips, first):
        clip = make_clip(seed)
        frames = tuple(draw_clip(clip))
        for fields in _ask_all(CLIP_QUESTIONS, clip, kinds):
            yield ClipExample(frames=frames, **fields)


def _ask_all(
    questions: QuestionSet, scene: SceneLike, kinds: Sequence[str] | None
) -> Iterator[dict[str, Any]]:
    """Fields of a `PebbleExample`, for each question."""
    families = questions.families
    for question in questions.ask(scene, kinds):
        yield {
            "question": question.text,
            "answer": question.answer,
            "kind": question.kind,
            "family": families[question.kind],
            "scene_id": scene.seed,
        }
