"""The offline benchmark: pictures with questions, in fixed splits that share no scene."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image

from tokencover.pebble.drawing import draw
from tokencover.pebble.questions import FAMILIES, KINDS, ask
from tokencover.pebble.scene import make_scene
from tokencover.pebble.splits import scene_seeds


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One question about one scene, or about one clip.

    Attributes
    ----------
    question
        The words to ask.
    answer
        The one right word.
    kind
        Type of the question, one of ``KINDS``.
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
class Example(Asked):
    """One question about one picture.

    Attributes
    ----------
    picture
        RGB, 192 x 192; questions about one scene share it.
    """

    picture: Image.Image


def examples(
    split: str, scenes: int | None = None, kinds: Sequence[str] = KINDS
) -> Iterator[Example]:
    """Go through a split, one question of each kind about every scene.

    Parameters
    ----------
    split
        ``"test"`` to report, ``"validation"`` to choose settings, ``"train"`` to train.
    scenes
        How many scenes, from the first; by default all of them.
    kinds
        Which kinds of questions.
    """
    for seed in scene_seeds(split, scenes):
        scene = make_scene(seed)
        picture = draw(scene)
        for question in ask(scene, kinds):
            yield Example(
                picture=picture,
                question=question.text,
                answer=question.answer,
                kind=question.kind,
                family=FAMILIES[question.kind],
                scene_id=seed,
            )
