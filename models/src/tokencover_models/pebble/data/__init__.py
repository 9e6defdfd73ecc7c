"""What Pebble is taught and asked: scenes and clips from seeds, their pictures, words, questions.

Needs numpy and Pillow, no model.
"""

from tokencover_models.pebble.data.clip import (
    CLIP_TOKENS,
    COUNTER,
    FRAME_COUNT,
    FRAME_GRID,
    Clip,
    Passer,
    Visitor,
    make_clip,
)
from tokencover_models.pebble.data.clip_questions import CLIP_QUESTIONS, DEMO_CLIP_QUESTIONS
from tokencover_models.pebble.data.drawing import FRAME_SIZE, PICTURE_SIZE, draw_clip, draw_scene
from tokencover_models.pebble.data.examples import (
    ClipExample,
    PebbleExample,
    PictureExample,
    make_clip_examples,
    make_examples,
)
from tokencover_models.pebble.data.questions import COARSE, FINE, Question, QuestionSet, SceneLike
from tokencover_models.pebble.data.scene import (
    GRID,
    PATCH,
    PICTURE_TOKENS,
    Animal,
    Scene,
    Thing,
    make_scene,
)
from tokencover_models.pebble.data.scene_questions import DEMO_SCENE_QUESTIONS, SCENE_QUESTIONS
from tokencover_models.pebble.data.splits import SPLIT_SCENES, get_training_seed, list_seeds

__all__ = [
    "CLIP_QUESTIONS",
    "CLIP_TOKENS",
    "COARSE",
    "COUNTER",
    "DEMO_CLIP_QUESTIONS",
    "DEMO_SCENE_QUESTIONS",
    "FINE",
    "FRAME_COUNT",
    "FRAME_GRID",
    "FRAME_SIZE",
    "GRID",
    "PATCH",
    "PICTURE_SIZE",
    "PICTURE_TOKENS",
    "SCENE_QUESTIONS",
    "SPLIT_SCENES",
    "Animal",
    "Clip",
    "ClipExample",
    "Passer",
    "PebbleExample",
    "PictureExample",
    "Question",
    "QuestionSet",
    "Scene",
    "SceneLike",
    "Thing",
    "Visitor",
    "draw_clip",
    "draw_scene",
    "get_training_seed",
    "list_seeds",
    "make_clip",
    "make_clip_examples",
    "make_examples",
    "make_scene",
]
