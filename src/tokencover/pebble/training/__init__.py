"""How Pebble's models are trained: batches, losses, schedules, the loop."""

from tokencover.pebble.training.batches import Batch, make_clip_batch, make_picture_batch
from tokencover.pebble.training.caption_learner import CaptionLearner
from tokencover.pebble.training.learners import (
    ClipLearner,
    DescribingLearner,
    Learner,
    PictureLearner,
)
from tokencover.pebble.training.loop import PebbleTrainingSettings, run_training, train
from tokencover.pebble.training.losses import compute_answer_loss
from tokencover.pebble.training.packed_questions import (
    LEAD,
    NO_TARGET,
    PackedQuestions,
    answer_questions,
)
from tokencover.pebble.training.schedules import (
    CAPTION_SCHEDULE,
    CLIP_SCHEDULE,
    PICTURE_SCHEDULE,
    Schedule,
    Stage,
)

__all__ = [
    "CAPTION_SCHEDULE",
    "CLIP_SCHEDULE",
    "LEAD",
    "NO_TARGET",
    "PICTURE_SCHEDULE",
    "Batch",
    "CaptionLearner",
    "ClipLearner",
    "DescribingLearner",
    "Learner",
    "PackedQuestions",
    "PebbleTrainingSettings",
    "PictureLearner",
    "Schedule",
    "Stage",
    "answer_questions",
    "compute_answer_loss",
    "make_clip_batch",
    "make_picture_batch",
    "run_training",
    "train",
]
