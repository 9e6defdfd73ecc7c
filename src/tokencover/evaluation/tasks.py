"""Tasks: examples with images or videos, a question, and a way to score answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from tokencover.errors import InputError
from tokencover.images import open_image, open_video, validate_image_file
from tokencover.prompting import Kind, Medium

Source = Image.Image | Path | Callable[[], Image.Image]
"""An image, its path, or a function that loads it."""


@dataclass(frozen=True)
class VideoFile:
    """A video file, and how many of its frames the model gets, evenly spaced."""

    path: Path
    frames: int


Frames = tuple[Source, ...] | VideoFile
"""The frames of a video, or its file."""


@dataclass(frozen=True)
class Example:
    """One question about images or videos.

    Attributes
    ----------
    id : str
        Unique within its task.
    sources : tuple of Source
        The images, or where to load them from, in the order of the prompt.
    question : str
        The question.
    answers : tuple of str
        Reference answers; often one.
    cluster : str
        Examples of one cluster (questions about one scene) are not independent: intervals resample
        whole clusters.
    video_sources : tuple of Frames
        The frames of each video, or its file; videos follow images in the prompt.
    prompt_words : str, optional
        The part of `question` that a method reads as the prompt; by default all of it.
    """

    id: str
    sources: tuple[Source, ...]
    question: str
    answers: tuple[str, ...]
    cluster: str
    video_sources: tuple[Frames, ...] = ()
    prompt_words: str | None = None

    @property
    def images(self) -> tuple[Image.Image, ...]:
        """The images in RGB; files are read now, to make a broken one an error of this example."""
        return tuple(map(_open_source, self.sources))

    @property
    def videos(self) -> tuple[tuple[Image.Image, ...], ...]:
        """The frames of each video in RGB, read like images."""
        return tuple(map(_open_frames, self.video_sources))

    @property
    def media(self) -> tuple[Medium, ...]:
        """Images and videos, in the order of the prompt."""
        return *self.images, *self.videos


@dataclass(frozen=True)
class Total:
    """A benchmark's own score of all answers, where it is more than their mean score.

    `share` is a fraction of the best score, which tables show, None if it is the mean score;
    `metrics` has all metrics on the benchmark's own scales.
    """

    share: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Examples with a way to score answers.

    Attributes
    ----------
    name : str
        Its name in tables.
    group : str
        Tasks of one group are averaged: "strong" and "weak" coupling in the paper, "fine" and
        "coarse" for pebble.
    examples : callable
        Iterates over the examples, always in the same order.
    score : callable
        From an answer and its example to a number between 0 and 1.
    version : str
        Identifies the examples: results of two versions do not mix.
    shows : frozenset of "image" and "video"
        Inputs that a model must support; empty if that is not known beforehand.
    max_new_tokens : int, optional
        Length of an answer, if the task fixes it.
    stops : tuple of str
        Texts at which an answer ends.
    sum_up : callable, optional
        From examples with their answers to the benchmark's own score; by default their mean score.
    judged : bool
        Whether the benchmark has its answers judged by a language model: questions and reference
        answers are saved with the results then.
    source : str
        The name with which `load_tasks` loads it: "pebble/color", or the path of its file; empty
        if it has no such name.
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
        """Return an answer up to its first stop."""
        for stop in self.stops:
            answer = answer.split(stop, 1)[0]
        return answer.strip()


def check_files(task: Task) -> None:
    """Raise `InputError` if image files of a task are missing or broken; reads only their headers.

    Call it before a model is loaded.
    """
    checked: set[Path] = set()
    wrong: list[InputError] = []
    for example in task.examples():
        for path in _list_files(example):
            if path not in checked:
                checked.add(path)
                try:
                    validate_image_file(path)
                except InputError as error:
                    wrong.append(error)
    if wrong:
        more = f" ({len(wrong)} of {len(checked)} files are wrong.)" if len(wrong) > 1 else ""
        raise InputError(
            f"{task.name}: {wrong[0]}{more} Repair it, or let --keep-going count such examples "
            "as failed."
        ) from wrong[0]


def _list_files(example: Example) -> Iterator[Path]:
    """Files of an example: images and frames, then videos."""
    frames = [video for video in example.video_sources if not isinstance(video, VideoFile)]
    for source in (*example.sources, *(source for video in frames for source in video)):
        if isinstance(source, Path):
            yield source
    for video in example.video_sources:
        if isinstance(video, VideoFile):
            yield video.path


def _open_frames(frames: Frames) -> tuple[Image.Image, ...]:
    if isinstance(frames, VideoFile):
        return open_video(frames.path, frames.frames)
    return tuple(map(_open_source, frames))


def _open_source(source: Source) -> Image.Image:
    given = source() if callable(source) and not isinstance(source, Image.Image) else source
    return open_image(given)
