"""Images, videos and questions of lmms-eval's documents, prepared for a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from PIL import Image

from tokencover.errors import InputError, LoadError
from tokencover.prompting import Medium

PromptWords = Literal["question", "turn"]
"""What methods read as the prompt: the document's question, or the whole turn of the user."""
CLIP_MEAN: Final = (122, 116, 104)
"""The mean color of CLIP's images, with which LLaVA pads."""
MME_INSTRUCTION: Final = " Please answer yes or no."
"""Ends MME's questions; lmms-eval replaces it."""


@dataclass(frozen=True)
class ShowingSettings:
    """How documents are prepared.

    Attributes
    ----------
    prompt_words : "question" or "turn"
        What methods read as the prompt.
    pad : bool
        Whether images are padded to squares, as LLaVA's own evaluation does.
    frames : int
        Number of frames of a video.
    """

    prompt_words: PromptWords = "question"
    pad: bool = False
    frames: int = 8

    def __post_init__(self) -> None:
        if self.prompt_words not in get_args(PromptWords):
            raise InputError(f"prompt_words is 'question' or 'turn', not {self.prompt_words!r}.")
        if self.frames < 1:
            raise InputError(f"a video needs at least one frame, got {self.frames}.")


def read_messages(messages: Any, where: str) -> tuple[list[dict[str, Any]], str]:
    """Return the images and videos of a conversation, and the text after them.

    Raises `InputError` unless it is one turn of the user with images before text.
    """
    plain = isinstance(messages, Sequence) and len(messages) == 1
    if not plain or messages[0].get("role") != "user":
        raise InputError(f"{where} has more than one turn of the user, which is not supported.")
    items = messages[0]["content"]
    kinds = [item["type"] for item in items]
    media = [item for item in items if item["type"] != "text"]
    if "text" not in kinds or kinds.index("text") < len(media):
        raise InputError(f"{where} has text before an image, which is not supported.")
    for item in media:
        if item["type"] not in ("image", "video"):
            raise InputError(f"{where} contains {item['type']!r}, which is not supported.")
    texts: list[str] = [item["text"] for item in items if item["type"] == "text"]
    return media, "\n".join(texts)


def load_medium(item: Mapping[str, Any], settings: ShowingSettings) -> Medium:
    """Load an image in RGB, or the frames of a video."""
    source = item["url"]
    if item["type"] == "image":
        image = _open_image(source)
        return pad_to_square(image) if settings.pad else image
    if isinstance(source, str | os.PathLike):
        return read_frames(source, settings.frames)
    return [frame.convert("RGB") for frame in source]


def pad_to_square(image: Image.Image) -> Image.Image:
    """Put an image into the middle of a square, in CLIP's mean color."""
    width, height = image.size
    side = max(width, height)
    if width == height:
        return image
    square = Image.new("RGB", (side, side), CLIP_MEAN)
    square.paste(image, ((side - width) // 2, (side - height) // 2))
    return square


def extract_question(document: Mapping[str, Any], text: str, where: str) -> str:
    """Return the document's question as it is written in the text of the turn.

    Without the instruction, the options and the hint around it; tasks change its first letter.
    Raises `InputError` if the text does not contain it.
    """
    question = document.get("question")
    if isinstance(question, str):
        for form in (question.strip(), question.strip().removesuffix(MME_INSTRUCTION).strip()):
            at = text.lower().rfind(form.lower()) if form else -1
            # Lower case must not be longer than the text, as that of a few letters is.
            if at >= 0 and text[at : at + len(form)].lower() == form.lower():
                return text[at : at + len(form)]
    raise InputError(
        f"{where}: its question {question!r} is not part of the prompt, {text[:200]!r}: give "
        "--prompt-words turn to let methods read the whole prompt."
    )


def _open_image(source: Any) -> Image.Image:
    if isinstance(source, Image.Image):
        return source.convert("RGB")
    with Image.open(source) as opened:
        return opened.convert("RGB")


# ---- video files ----------------------------------------------------------------------------


def read_frames(path: str | os.PathLike[str], count: int) -> list[Image.Image]:
    """Read evenly spaced frames, including the first and the last.

    A video with fewer frames repeats some. Raises `LoadError` if the file cannot be read.
    """
    import av

    try:
        wanted = choose_frames(_count_frames(path), count)
        frames: dict[int, Image.Image] = {}
        with av.open(os.fspath(path)) as container:
            for index, frame in enumerate(container.decode(video=0)):
                if index in wanted:
                    frames[index] = frame.to_image().convert("RGB")
                if index == wanted[-1]:
                    break
        if not frames:
            raise ValueError("no frame of it can be decoded")
        last = frames[max(frames)]  # a damaged file has fewer frames than packets
        return [frames.get(index, last) for index in wanted]
    except (OSError, ValueError, IndexError, av.FFmpegError) as error:
        raise LoadError(f"the video {os.fspath(path)} cannot be read: {error}.") from error


def choose_frames(frames: int, count: int) -> list[int]:
    """Return evenly spaced indices of frames; raises `ValueError` if there are no frames."""
    if frames < 1:
        raise ValueError("it has no frames")
    if count == 1:
        return [0]
    # Halves are rounded down, as truncation of numpy's linspace does in Video-LLaVA.
    return [index * (frames - 1) // (count - 1) for index in range(count)]


def _count_frames(path: str | os.PathLike[str]) -> int:
    """Count packets: the number in the file's header may be wrong."""
    import av

    with av.open(os.fspath(path)) as container:
        return sum(1 for packet in container.demux(video=0) if packet.size)
