"""Makes a model's inputs from clips and text.

The stock video processors of transformers need torchvision; this one needs what pictures need.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import BatchFeature, PreTrainedTokenizerFast

from tokencover.errors import InputError
from tokencover.pebble.batches import normalised
from tokencover.pebble.clips.clip import FRAME_COUNT
from tokencover.pebble.clips.describing import VISUAL_TOKENS
from tokencover.pebble.clips.drawing import SIZE
from tokencover.pebble.clips.model import LONGEST
from tokencover.pebble.tokenizer import make_chat_template, make_tokenizer
from tokencover.pebble.vocabulary import CLIP_WORD_IDS, IMAGE, VIDEO

Frames = Sequence[Image.Image]


class ClipProcessor:
    """Tokenizer and frames to tensors, called like a processor of transformers.

    Parameters
    ----------
    tokenizer
        By default a new one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerFast | None = None) -> None:
        self.tokenizer: Any = tokenizer or _make_clip_tokenizer()

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
        filled = [each.replace(VIDEO, VIDEO * VISUAL_TOKENS) for each in texts]
        inputs = dict(self.tokenizer(filled, padding=padding, return_tensors="pt"))
        if clips:
            inputs["pixel_values_videos"] = torch.stack([clip_pixels(clip) for clip in clips])
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


def clip_pixels(frames: Frames) -> Tensor:
    """Frames as the model wants them, shape (8, 3, 96, 96)."""
    if len(frames) != FRAME_COUNT:
        raise InputError(f"a clip has {FRAME_COUNT} frames, got {len(frames)}")
    return normalised([_resized(frame.convert("RGB")) for frame in frames])


def _resized(frame: Image.Image) -> Image.Image:
    if frame.size == (SIZE, SIZE):
        return frame
    return frame.resize((SIZE, SIZE), Image.Resampling.BICUBIC)


def _make_clip_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = make_tokenizer(CLIP_WORD_IDS, (IMAGE, VIDEO))
    tokenizer.chat_template = make_chat_template("video")
    tokenizer.model_max_length = LONGEST
    return tokenizer
