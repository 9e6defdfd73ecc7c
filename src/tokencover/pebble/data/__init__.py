"""What Pebble is taught and asked: scenes and clips from seeds, their pictures, words, questions.

Needs numpy and Pillow, no model.
"""

from tokencover.pebble.data.clip import (
    COUNTER,
    FRAME_COUNT,
    FRAME_GRID,
    Clip,
    Passer,
    Visitor,
    make_clip,
)
from tokencover.pebble.data.clip_questions import CLIP_QUESTIONS
from tokencover.pebble.data.drawing import FRAME_SIZE, PICTURE_SIZE, draw_clip, draw_scene
from tokencover.pebble.data.examples import (
    ClipExample,
    PebbleExample,
    PictureExample,
    make_clip_examples,
    make_examples,
)
from tokencover.pebble.data.holdings import HOLDINGS, TABLES, label_holdings
from tokencover.pebble.data.patch_labels import (
    CLIP_GROUP_INDEX,
    CLIP_GROUPS,
    CLIP_TOKENS,
    NONE,
    PICTURE_TOKENS,
    SCENE_GROUP_INDEX,
    SCENE_GROUPS,
    WordGroup,
    label_clip,
    label_scene,
    weigh_words,
)
from tokencover.pebble.data.phrases import (
    PHRASE_WORDS,
    Phrase,
    describe_objects,
    restrict_scene,
)
from tokencover.pebble.data.questions import COARSE, FINE, Question, QuestionSet, SceneLike
from tokencover.pebble.data.scene import GRID, PATCH, Animal, Scene, Thing, make_scene
from tokencover.pebble.data.scene_questions import SCENE_QUESTIONS
from tokencover.pebble.data.splits import SPLIT_SCENES, find_training_seed, list_seeds

__all__ = [
    "CLIP_GROUPS",
    "CLIP_GROUP_INDEX",
    "CLIP_QUESTIONS",
    "CLIP_TOKENS",
    "COARSE",
    "COUNTER",
    "FINE",
    "FRAME_COUNT",
    "FRAME_GRID",
    "FRAME_SIZE",
    "GRID",
    "HOLDINGS",
    "NONE",
    "PATCH",
    "PHRASE_WORDS",
    "PICTURE_SIZE",
    "PICTURE_TOKENS",
    "SCENE_GROUPS",
    "SCENE_GROUP_INDEX",
    "SCENE_QUESTIONS",
    "SPLIT_SCENES",
    "TABLES",
    "Animal",
    "Clip",
    "ClipExample",
    "Passer",
    "PebbleExample",
    "Phrase",
    "PictureExample",
    "Question",
    "QuestionSet",
    "Scene",
    "SceneLike",
    "Thing",
    "Visitor",
    "WordGroup",
    "describe_objects",
    "draw_clip",
    "draw_scene",
    "find_training_seed",
    "label_clip",
    "label_holdings",
    "label_scene",
    "list_seeds",
    "make_clip",
    "make_clip_examples",
    "make_examples",
    "make_scene",
    "restrict_scene",
    "weigh_words",
]
