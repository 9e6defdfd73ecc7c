"""Make the models' inputs from text with pictures or clips.

The processor for pictures is a stock one. The stock video processors of transformers need
torchvision; the one for clips needs what pictures need.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import BatchFeature, LlavaProcessor, PreTrainedTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from tokencover.errors import InputError
from tokencover_models.pebble.data import CLIP_TOKENS, FRAME_COUNT, FRAME_SIZE, PATCH, PICTURE_SIZE
from tokencover_models.pebble.model.tokenizer import (
    make_chat_template,
    make_clip_tokenizer,
    make_picture_tokenizer,
)
from tokencover_models.pebble.vocabulary import VIDEO

PIXEL_MEAN: Final = 0.5
PIXEL_STD: Final = 0.25
Frames = Sequence[Image.Image]


def make_picture_processor(tokenizer: PreTrainedTokenizerFast | None = None) -> LlavaProcessor:
    """Make the processor: pictures to 192 x 192, words to tokens, 576 places for the picture.

    Parameters
    ----------
    tokenizer
        One that brings the shape of chats with it; by default a new one of pebble's.
    """
    pictures = CLIPImageProcessorPil(
        size={"height": PICTURE_SIZE, "width": PICTURE_SIZE},
        crop_size={"height": PICTURE_SIZE, "width": PICTURE_SIZE},
        image_mean=[PIXEL_MEAN] * 3,
        image_std=[PIXEL_STD] * 3,
    )
    return LlavaProcessor(
        image_processor=pictures,
        tokenizer=tokenizer or make_picture_tokenizer(),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=tokenizer.chat_template if tokenizer else make_chat_template("image"),
    )


class ClipProcessor:
    """Tokenizer and frames to tensors, called like a processor of transformers.

    Parameters
    ----------
    tokenizer
        By default a new one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None = None) -> None:
        self.tokenizer: Any = tokenizer or make_clip_tokenizer()

    def __call__(
        self,
        text: str | Sequence[str],
        videos: Sequence[Frames] | None = None,
        padding: bool = False,
        return_tensors: str = "pt",
    ) -> BatchFeature:
        """Inputs of the model.

        Parameters
        ----------
        text
            One text or several, with ``<video>`` where a clip belongs.
        videos
            The clips of all texts in their order, eight frames each, of any size.
        padding
            Whether texts may differ in length.
        return_tensors
            Only ``"pt"``.
        """
        if return_tensors != "pt":
            raise InputError(f"return_tensors must be 'pt', got {return_tensors!r}")
        texts = [text] if isinstance(text, str) else list(text)
        clips = [] if videos is None else list(videos)
        wanted = sum(each.count(VIDEO) for each in texts)
        if wanted != len(clips):
            raise InputError(
                f"the text has {VIDEO} {wanted} times, and {len(clips)} clips were given; "
                "give one clip for each"
            )
        filled = [each.replace(VIDEO, VIDEO * CLIP_TOKENS) for each in texts]
        inputs = dict(self.tokenizer(filled, padding=padding, return_tensors="pt"))
        if clips:
            inputs["pixel_values_videos"] = torch.stack([normalise_clip(clip) for clip in clips])
        return BatchFeature(inputs)

    def apply_chat_template(self, chat: Any, **options: Any) -> Any:
        """Chats as text, or as tokens; see the tokenizer's own method."""
        return self.tokenizer.apply_chat_template(chat, **{"tokenize": False, **options})

    def decode(self, *arguments: Any, **options: Any) -> Any:
        """Text of tokens."""
        return self.tokenizer.decode(*arguments, **options)

    def batch_decode(self, *arguments: Any, **options: Any) -> Any:
        """Texts of a batch of tokens."""
        return self.tokenizer.batch_decode(*arguments, **options)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the tokenizer; there is nothing else to write."""
        self.tokenizer.save_pretrained(folder)


def normalise_clip(frames: Frames) -> Tensor:
    """Frames as the model wants them, shape (8, 3, 96, 96)."""
    if len(frames) != FRAME_COUNT:
        raise InputError(f"a clip has {FRAME_COUNT} frames, got {len(frames)}")
    return normalise_pictures([_resize(frame.convert("RGB")) for frame in frames])


def normalise_pictures(pictures: Sequence[Image.Image]) -> Tensor:
    """Pictures of one size as the model wants them, shape (pictures, 3, height, width)."""
    pixels = np.stack([np.asarray(picture) for picture in pictures])
    scaled = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    return ((scaled - PIXEL_MEAN) / PIXEL_STD).contiguous()


def _resize(frame: Image.Image) -> Image.Image:
    if frame.size == (FRAME_SIZE, FRAME_SIZE):
        return frame
    return frame.resize((FRAME_SIZE, FRAME_SIZE), Image.Resampling.BICUBIC)
