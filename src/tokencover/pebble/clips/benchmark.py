"""The offline benchmark of clips, in the splits that pictures have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from PIL import Image

from tokencover.pebble.benchmark import Asked
from tokencover.pebble.clips.clip import make_clip
from tokencover.pebble.clips.drawing import draw_clip
from tokencover.pebble.clips.questions import FAMILIES, KINDS, ask
from tokencover.pebble.splits import scene_seeds


@dataclass(frozen=True, kw_only=True)
class ClipExample(Asked):
    """One question about one clip.

    Attributes
    ----------
    frames
        Eight, RGB, 96 x 96; questions about one clip share them.
    """

    frames: tuple[Image.Image, ...]


def clip_examples(
    split: str, clips: int | None = None, kinds: Sequence[str] = KINDS
) -> Iterator[ClipExample]:
    """Go through a split, one question of each kind about every clip.

    Parameters
    ----------
    split
        ``"test"`` to report, ``"validation"`` to choose settings, ``"train"`` to train.
    clips
        How many clips, from the first; by default all of them.
    kinds
        Which kinds of questions.
    """
    for seed in scene_seeds(split, clips):
        clip = make_clip(seed)
        frames = tuple(draw_clip(clip))
        for question in ask(clip, kinds):
            yield ClipExample(
                frames=frames,
                question=question.text,
                answer=question.answer,
                kind=question.kind,
                family=FAMILIES[question.kind],
                scene_id=seed,
            )
