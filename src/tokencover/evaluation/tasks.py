"""What is asked of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from tokencover.errors import InputError
from tokencover.images import open_image, open_video, validate_image_file
from tokencover.prompting import Kind, Medium

Source = Image.Image | Path | Callable[[], Image.Image]
"""A picture, where it lies, or what brings it."""


@dataclass(frozen=True)
class ClipFile:
    """A video file, and how many of its frames are shown, evenly spaced."""

    path: Path
    frames: int


Frames = tuple[Source, ...] | ClipFile
"""The frames of a clip, or its file."""


@dataclass(frozen=True)
class Example:
    """One question about pictures, or about clips.

    Attributes
    ----------
    id : str
        Unique within its task.
    sources : tuple of Source
        The pictures, or where they lie, in the order in which the prompt shows them.
    question : str
        The words to ask.
    answers : tuple of str
        What people answered; often one.
    cluster : str
        Examples with the same one (questions about one scene) are not independent, so intervals
        resample whole clusters.
    clip_sources : tuple of Frames
        The frames of each clip, or where they lie; the prompt shows clips after pictures.
    prompt_words : str, optional
        The part of `question` that a method is to read as the prompt; by default all of it.
    """

    id: str
    sources: tuple[Source, ...]
    question: str
    answers: tuple[str, ...]
    cluster: str
    clip_sources: tuple[Frames, ...] = ()
    prompt_words: str | None = None

    @property
    def pictures(self) -> tuple[Image.Image, ...]:
        """The pictures in RGB; files are read now, so that a broken one is this example's fault."""
        return tuple(map(_open_source, self.sources))

    @property
    def clips(self) -> tuple[tuple[Image.Image, ...], ...]:
        """The frames of each clip in RGB, read like pictures."""
        return tuple(map(_open_frames, self.clip_sources))

    @property
    def media(self) -> tuple[Medium, ...]:
        """Pictures and clips, in the order in which the prompt shows them."""
        return *self.pictures, *self.clips


@dataclass(frozen=True)
class Total:
    """What a benchmark makes of all answers, where that is more than their mean score.

    Attributes
    ----------
    share : float, optional
        Its own number as a share of the best one: what tables show instead of the mean score. None
        if the mean is its number.
    metrics : mapping
        Everything it counts, by its own names and on its own scales.
    """

    share: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Examples with a way to score answers.

    Attributes
    ----------
    name : str
        What tables call it.
    group : str
        Tasks of one group are averaged apart: "strong" and "weak" coupling in the paper, "fine" and
        "coarse" for pebble.
    examples : callable
        Goes through the examples, always in the same order.
    score : callable
        From an answer and its example to a number between 0 and 1.
    version : str
        Another one when the examples are others: results of two versions do not mix.
    shows : frozenset of "image" and "video"
        What a model must take to be asked; empty if that is not known beforehand.
    max_new_tokens : int, optional
        Length of an answer, if the task fixes it.
    stops : tuple of str
        Texts at which an answer ends.
    sum_up : callable, optional
        From examples with their answers to what the benchmark makes of them; by default their mean
        score.
    judged : bool
        Whether the benchmark has its answers judged by a language model: questions and right
        answers are kept beside the results then.
    source : str
        What `find_tasks` finds it by again: "pebble/color", or where its file lies; empty if it has
        no such name.
    """

    name: str
    group: str
    examples: Callable[[], Iterator[Example]]
    score: Callable[[str, Example], float]
    version: str = ""
    shows: frozenset[Kind] = frozenset()
    max_new_tokens: int | None = None
    stops: tuple[str, ...] = ()
    sum_up: Callable[[Sequence[tuple[Example, str]]], Total] | None = None
    judged: bool = False
    source: str = ""

    def cut(self, answer: str) -> str:
        """An answer up to where it ends."""
        for stop in self.stops:
            answer = answer.split(stop, 1)[0]
        return answer.strip()


def check_files(task: Task) -> None:
    """Refuse a task whose pictures are not there, or are none, before a model is loaded.

    It looks at the beginning of each file and no further.
    """
    seen: set[Path] = set()
    wrong: list[InputError] = []
    for example in task.examples():
        for path in _list_files(example):
            if path not in seen:
                seen.add(path)
                try:
                    validate_image_file(path)
                except InputError as error:
                    wrong.append(error)
    if wrong:
        others = f" ({len(wrong)} of {len(seen)} files are wrong.)" if len(wrong) > 1 else ""
        raise InputError(
            f"{task.name}: {wrong[0]}{others} Repair it, or let --keep-going count such examples "
            "as failed."
        ) from wrong[0]


def _list_files(example: Example) -> Iterator[Path]:
    """The pictures of an example that are files; those of clips are opened when they are asked."""
    frames = [each for each in example.clip_sources if not isinstance(each, ClipFile)]
    for source in (*example.sources, *(source for clip in frames for source in clip)):
        if isinstance(source, Path):
            yield source
    for clip in example.clip_sources:
        if isinstance(clip, ClipFile):
            yield clip.path


def _open_frames(frames: Frames) -> tuple[Image.Image, ...]:
    if isinstance(frames, ClipFile):
        return open_video(frames.path, frames.frames)
    return tuple(map(_open_source, frames))


def _open_source(source: Source) -> Image.Image:
    given = source() if callable(source) and not isinstance(source, Image.Image) else source
    return open_image(given)
