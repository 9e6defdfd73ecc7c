"""What ``tokencover ask`` asks: the user's pictures and questions, or pebble's own.

Not a command itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokencover.cli.options import check_questions
from tokencover.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

    from tokencover.prompting import Medium

FROM_INPUT: Final = "-"
"""In the place of a question: there is one in each line of standard input."""


@dataclass(frozen=True)
class Query:
    """A question about a picture or a clip, and the right answer if it is known."""

    picture: Medium
    question: str
    answer: str | None = None


@dataclass(frozen=True)
class Request:
    """What the user asks for, checked as far as that goes without a model.

    Attributes
    ----------
    picture : Image, optional
        The user's own.
    questions : tuple of str
        The user's own.
    scene : int
        Which scene or clip of pebble's, if there is no picture.
    """

    picture: Image.Image | None
    questions: tuple[str, ...]
    scene: int

    def make_queries(self, processor: Any) -> list[Query]:
        """Questions for a model: scenes, or clips for one that takes no pictures."""
        from tokencover.bundled_models import get_scenes_for
        from tokencover.prompting import list_kinds

        if self.picture is not None:
            return [Query(self.picture, question) for question in self.questions]
        scenes = get_scenes_for(list_kinds(processor))
        drawn = scenes.draw(self.scene, True)
        if self.questions:
            return [Query(drawn.medium, question) for question in self.questions]
        return [Query(drawn.medium, *pair) for pair in drawn.answers.items()]


def make_request(image: Path | None, questions: Sequence[str], scene: int) -> Request:
    """Check what the user gave, and open the picture."""
    from tokencover.bundled_models import get_scene_set

    asked = [line for given in questions for line in _list_lines(given)]
    check_questions(asked)
    if image is not None:
        from tokencover.images import open_image

        if not asked:
            raise InputError("say what to ask about your picture: --question 'what is this ?'")
        return Request(open_image(image), tuple(asked), 0)
    last = get_scene_set("image").num_scenes - 1
    if not 0 <= scene <= last:
        raise InputError(f"--scene is from 0 to {last}, got {scene}.")
    return Request(None, tuple(asked), scene)


def _list_lines(given: str) -> list[str]:
    if given != FROM_INPUT:
        return [given]
    lines = [line.strip() for line in sys.stdin if line.strip()]
    if not lines:
        raise InputError("--question - reads questions from standard input, and there are none.")
    return lines
