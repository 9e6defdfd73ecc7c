"""How Pebble's models are trained: batches, losses, schedules, the loop."""

from tokencover.pebble.training.batches import Batch, make_clip_batch, make_picture_batch
from tokencover.pebble.training.learners import (
    ClipLearner,
    DescribingLearner,
    Learner,
    LookupLearner,
)
from tokencover.pebble.training.loop import PebbleTrainingSettings, train
from tokencover.pebble.training.losses import compute_answer_loss, compute_description_loss
from tokencover.pebble.training.packed_questions import (
    LEAD,
    NO_TARGET,
    PackedQuestions,
    answer_questions,
    see_clips,
    see_pictures,
)
from tokencover.pebble.training.part_batches import deal_parts
from tokencover.pebble.training.picture_learner import PictureLearner
from tokencover.pebble.training.recipes import run_training
from tokencover.pebble.training.schedules import (
    CLIP_SCHEDULE,
    LOOKUP_SCHEDULE,
    PICTURE_SCHEDULE,
    Schedule,
    Stage,
)

__all__ = [
    "CLIP_SCHEDULE",
    "LEAD",
    "LOOKUP_SCHEDULE",
    "NO_TARGET",
    "PICTURE_SCHEDULE",
    "Batch",
    "ClipLearner",
    "DescribingLearner",
    "Learner",
    "LookupLearner",
    "PackedQuestions",
    "PebbleTrainingSettings",
    "PictureLearner",
    "Schedule",
    "Stage",
    "answer_questions",
    "compute_answer_loss",
    "compute_description_loss",
    "deal_parts",
    "make_clip_batch",
    "make_picture_batch",
    "run_training",
    "see_clips",
    "see_pictures",
    "train",
]
