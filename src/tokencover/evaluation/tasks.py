"""What is asked of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from tokencover.errors import InputError
from tokencover.prompting import Kind, Medium

Source = Image.Image | Path
"""A picture, or where it lies."""


@dataclass(frozen=True)
class Example:
    """One question about pictures, or about clips.

    Attributes
    ----------
    id : str
        Unique within its task.
    sources : tuple of Image or Path
        The pictures, or where they lie, in the order in which the prompt shows them.
    question : str
        The words to ask.
    answers : tuple of str
        What people answered; often one.
    cluster : str
        Examples with the same one (questions about one scene) are not independent, so intervals
        resample whole clusters.
    clip_sources : tuple of tuple of Image or Path
        The frames of each clip, or where they lie; the prompt shows clips after pictures.
    prompt_words : str, optional
        The part of `question` that a method is to read as the prompt; by default all of it.
    """

    id: str
    sources: tuple[Source, ...]
    question: str
    answers: tuple[str, ...]
    cluster: str
    clip_sources: tuple[tuple[Source, ...], ...] = ()
    prompt_words: str | None = None

    @property
    def pictures(self) -> tuple[Image.Image, ...]:
        """The pictures in RGB; files are read now, so that a broken one is this example's fault."""
        return tuple(map(_open_picture, self.sources))

    @property
    def clips(self) -> tuple[tuple[Image.Image, ...], ...]:
        """The frames of each clip in RGB, read like pictures."""
        return tuple(tuple(map(_open_picture, frames)) for frames in self.clip_sources)

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

    def cut(self, answer: str) -> str:
        """An answer up to where it ends."""
        for stop in self.stops:
            answer = answer.split(stop, 1)[0]
        return answer.strip()


def _open_picture(source: Source) -> Image.Image:
    if isinstance(source, Image.Image):
        return source.convert("RGB")
    try:
        with Image.open(source) as opened:
            return opened.convert("RGB")
    except OSError as error:
        raise InputError(f"the picture {source} cannot be read: {error}.") from error
