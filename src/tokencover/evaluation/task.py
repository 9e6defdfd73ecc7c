"""What is asked of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tokencover.errors import InputError


@dataclass(frozen=True)
class Example:
    """One question about one or several pictures.

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
    """

    id: str
    sources: tuple[Image.Image | Path, ...]
    question: str
    answers: tuple[str, ...]
    cluster: str

    @property
    def pictures(self) -> tuple[Image.Image, ...]:
        """The pictures in RGB; files are read now, so that a broken one is this example's fault."""
        return tuple(
            _opened(each) if isinstance(each, Path) else each.convert("RGB")
            for each in self.sources
        )


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
    """

    name: str
    group: str
    examples: Callable[[], Iterator[Example]]
    score: Callable[[str, Example], float]
    version: str = ""


def _opened(path: Path) -> Image.Image:
    try:
        with Image.open(path) as opened:
            return opened.convert("RGB")
    except OSError as error:
        raise InputError(f"the picture {path} cannot be read: {error}.") from error
