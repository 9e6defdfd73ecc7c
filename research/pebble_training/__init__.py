"""How Pebble's models are trained: batches, losses, schedules, the loop."""

from research.pebble_training.batches import Batch, make_clip_batch, make_picture_batch
from research.pebble_training.learners import (
    ClipLearner,
    DescribingLearner,
    Learner,
    LookupLearner,
)
from research.pebble_training.loop import PebbleTrainingSettings, train
from research.pebble_training.losses import compute_answer_loss, compute_description_loss
from research.pebble_training.packed_questions import (
    LEAD,
    NO_TARGET,
    PackedQuestions,
    answer_questions,
    encode_images,
    encode_videos,
)
from research.pebble_training.part_batches import deal_parts
from research.pebble_training.picture_learner import PictureLearner
from research.pebble_training.recipes import run_training
from research.pebble_training.schedules import (
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
    "encode_images",
    "encode_videos",
    "make_clip_batch",
    "make_picture_batch",
    "run_training",
    "train",
]
