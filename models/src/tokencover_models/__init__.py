"""Test models of tokencover: pebble for images and videos, and boulder.

Importing this package loads neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokencover.bundled_models import DrawnScene, ModelEntry, SceneSet
from tokencover_models.boulder import load_boulder, load_boulder_processor
from tokencover_models.pebble import (
    CLIP_CHECKPOINT,
    NUM_TEST_SCENES,
    PICTURE_CHECKPOINT,
    load_pebble,
    load_pebble_clips,
)

if TYPE_CHECKING:
    from tokencover.evaluation.tasks import Task

__all__ = [
    "BOULDER",
    "PEBBLE",
    "PEBBLE_CLIPS",
    "load_boulder",
    "load_boulder_processor",
    "load_pebble",
    "load_pebble_clips",
]

FOLDER = Path(__file__).parent


def _load_tasks(name: str) -> Callable[[str | None, str, int | None], list[Task]]:
    def load(question_type: str | None, split: str, limit: int | None) -> list[Task]:
        from tokencover_models.pebble.tasks import BENCHMARKS

        return BENCHMARKS[name].make_tasks(question_type, split, limit)

    return load


def _draw_image(number: int, demo: bool) -> DrawnScene:
    from tokencover_models.pebble import data

    scene = data.make_scene(number)
    asked = data.SCENE_QUESTIONS.ask(scene, data.DEMO_SCENE_QUESTIONS if demo else None)
    return DrawnScene(data.draw_scene(scene), {each.text: each.answer for each in asked})


def _draw_video(number: int, demo: bool) -> DrawnScene:
    from tokencover_models.pebble import data

    clip = data.make_clip(number)
    asked = data.CLIP_QUESTIONS.ask(clip, data.DEMO_CLIP_QUESTIONS if demo else None)
    return DrawnScene(list(data.draw_clip(clip)), {each.text: each.answer for each in asked})


def _load_picture_processor(folder: Path | None) -> Any:
    from transformers import AutoProcessor

    return AutoProcessor.from_pretrained(folder or PICTURE_CHECKPOINT, local_files_only=True)


def _load_clip_processor(folder: Path | None) -> Any:
    from tokencover_models.pebble.model import load_clip_processor

    return load_clip_processor(folder or CLIP_CHECKPOINT)


IMAGES = SceneSet("pebble", "image", NUM_TEST_SCENES, _draw_image, _load_tasks("pebble"))
VIDEOS = SceneSet(
    "pebble-clips", "video", NUM_TEST_SCENES, _draw_video, _load_tasks("pebble-clips")
)
PEBBLE = ModelEntry(
    name="pebble",
    model_type="llava",
    load=load_pebble,
    load_processor=_load_picture_processor,
    scenes=IMAGES,
    folder=PICTURE_CHECKPOINT,
    twig=FOLDER / "twigs" / "pebble",
    lmms_tasks=FOLDER / "lmms",
)
PEBBLE_CLIPS = ModelEntry(
    name="pebble-clips",
    model_type="video_llava",
    load=load_pebble_clips,
    load_processor=_load_clip_processor,
    scenes=VIDEOS,
    folder=CLIP_CHECKPOINT,
    lmms_tasks=FOLDER / "lmms",
)
BOULDER = ModelEntry(
    name="boulder",
    model_type="llava",
    load=load_boulder,
    load_processor=lambda folder: load_boulder_processor(),
    scenes=IMAGES,
)
