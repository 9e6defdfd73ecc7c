"""What a document of lmms-eval shows and asks, made ready for a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from PIL import Image

from tokencover.errors import InputError
from tokencover.prompting import Kind, Medium

PromptWords = Literal["question", "turn"]
"""What methods read as the prompt: the document's question, or all that the user says."""
CLIP_MEAN: Final = (122, 116, 104)
"""The mean colour of CLIP's pictures, in which LLaVA pads."""
MME_INSTRUCTION: Final = " Please answer yes or no."
"""Ends MME's questions, and lmms-eval puts another in its place."""


@dataclass(frozen=True)
class ShowingSettings:
    """How documents are shown.

    Attributes
    ----------
    prompt_words : "question" or "turn"
        What methods read as the prompt.
    pad : bool
        Whether pictures are padded to squares, as LLaVA's own evaluation does.
    frames : int
        How many frames of a video are shown.
    """

    prompt_words: PromptWords = "question"
    pad: bool = False
    frames: int = 8

    def __post_init__(self) -> None:
        if self.prompt_words not in get_args(PromptWords):
            raise InputError(f"prompt words are 'question' or 'turn', not {self.prompt_words!r}.")
        if self.frames < 1:
            raise InputError(f"a video needs at least one frame, got {self.frames}.")


def read_messages(messages: Any, where: str) -> tuple[list[dict[str, Any]], str]:
    """The pictures and videos of a conversation, and the words after them.

    Raises
    ------
    InputError
        If it is not one turn of the user, with pictures before words.
    """
    plain = isinstance(messages, Sequence) and len(messages) == 1
    if not plain or messages[0].get("role") != "user":
        raise InputError(f"{where} has more than one turn of the user, which is not supported.")
    items = messages[0]["content"]
    kinds = [item["type"] for item in items]
    media = [item for item in items if item["type"] != "text"]
    if "text" not in kinds or kinds.index("text") < len(media):
        raise InputError(f"{where} has words before a picture, which is not supported.")
    for item in media:
        if item["type"] not in ("image", "video"):
            raise InputError(f"{where} shows {item['type']!r}, which is not supported.")
    words: list[str] = [item["text"] for item in items if item["type"] == "text"]
    return media, "\n".join(words)


def list_media_kinds(media: Sequence[Mapping[str, Any]]) -> frozenset[Kind]:
    """What is shown."""
    return frozenset("image" if item["type"] == "image" else "video" for item in media)


def load_medium(item: Mapping[str, Any], settings: ShowingSettings) -> Medium:
    """A picture in RGB, or the frames of a video."""
    source = item["url"]
    if item["type"] == "image":
        picture = _open_picture(source)
        return pad_to_square(picture) if settings.pad else picture
    if isinstance(source, str | os.PathLike):
        from tokencover.evaluation.lmms.video_frames import read_frames

        return read_frames(source, settings.frames)
    return [frame.convert("RGB") for frame in source]


def pad_to_square(picture: Image.Image) -> Image.Image:
    """Put a picture into the middle of a square, in CLIP's mean colour."""
    width, height = picture.size
    side = max(width, height)
    if width == height:
        return picture
    square = Image.new("RGB", (side, side), CLIP_MEAN)
    square.paste(picture, ((side - width) // 2, (side - height) // 2))
    return square


def find_question(document: Mapping[str, Any], text: str, where: str) -> str:
    """The document's question as it stands in the words that are asked.

    Without the instruction, the options and the hint around it; tasks change its first letter.

    Raises
    ------
    InputError
        If it does not stand there.
    """
    question = document.get("question")
    if isinstance(question, str):
        for form in (question.strip(), question.strip().removesuffix(MME_INSTRUCTION).strip()):
            at = text.lower().rfind(form.lower()) if form else -1
            # Lower case must not be longer than the text, as that of a few letters is.
            if at >= 0 and text[at : at + len(form)].lower() == form.lower():
                return text[at : at + len(form)]
    raise InputError(
        f"{where}: its question {question!r} does not stand in what is asked, {text[:200]!r}: give "
        "--prompt-scope turn to let methods read all of that."
    )


def _open_picture(source: Any) -> Image.Image:
    if isinstance(source, Image.Image):
        return source.convert("RGB")
    with Image.open(source) as opened:
        return opened.convert("RGB")
