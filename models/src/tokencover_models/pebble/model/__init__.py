"""What Pebble's models are made of, and how they are loaded."""

from tokencover_models.pebble.model.architecture import (
    CLIP_BLOCKS,
    MODEL_HEADS,
    MODEL_WIDTH,
    VISION_FEATURE_LAYER,
    make_clip_model,
    make_picture_model,
    make_vision_config,
)
from tokencover_models.pebble.model.checkpoints import (
    CheckpointError,
    hide_progress,
    load_clip_checkpoint,
    load_clip_processor,
    load_picture_checkpoint,
)
from tokencover_models.pebble.model.processors import (
    PIXEL_MEAN,
    PIXEL_STD,
    ClipProcessor,
    make_picture_processor,
    normalise_clip,
    normalise_pictures,
)
from tokencover_models.pebble.model.tokenizer import (
    make_clip_tokenizer,
    make_picture_tokenizer,
    make_prompt,
)
from tokencover_models.pebble.vocabulary import IMAGE, PAD, PICTURE_WORD_IDS, PICTURE_WORDS, VIDEO

__all__ = [
    "CLIP_BLOCKS",
    "IMAGE",
    "MODEL_HEADS",
    "MODEL_WIDTH",
    "PAD",
    "PICTURE_WORDS",
    "PICTURE_WORD_IDS",
    "PIXEL_MEAN",
    "PIXEL_STD",
    "VIDEO",
    "VISION_FEATURE_LAYER",
    "CheckpointError",
    "ClipProcessor",
    "hide_progress",
    "load_clip_checkpoint",
    "load_clip_processor",
    "load_picture_checkpoint",
    "make_clip_model",
    "make_clip_tokenizer",
    "make_picture_model",
    "make_picture_processor",
    "make_picture_tokenizer",
    "make_prompt",
    "make_vision_config",
    "normalise_clip",
    "normalise_pictures",
]
