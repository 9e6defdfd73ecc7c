"""What the studio answers with: one model, or pebble's two, and what visitors ask of them."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

from PIL import Image

from tokencover.bundled_models import MODELS, DrawnScene, get_scene_set
from tokencover.catalog import read_methods
from tokencover.errors import InputError
from tokencover.images import open_clip, open_picture
from tokencover.methods import METHODS, Method, make_method, parse_methods
from tokencover.prompting import Kind, Medium
from tokencover.studio.model_desk import ModelDesk, StudioAnswer
from tokencover.studio.setup_link import OWN, Setup
from tokencover.studio.studio_facts import export_answer, render_answer, render_kept
from tokencover.visualization import GAP, animate_choice, flow, medium_as_seen, panels

MEDIA: Final[dict[str, Kind]] = {"picture": "image", "clip": "video"}
NEEDS_TRAINING: Final = ("twigvlm",)


@dataclass(frozen=True)
class StudioRequest:
    """A visitor's setup, and a file of their own if they brought one.

    Attributes
    ----------
    setup : Setup
        What is asked, and how.
    picture, clip : str or None
        Path of an uploaded file.
    """

    setup: Setup
    picture: str | None = None
    clip: str | None = None


@dataclass(frozen=True)
class StudioPage:
    """What a visitor gets to see.

    Attributes
    ----------
    sides : list of tuple of str
        For the method, and the one it is compared with: the kept tokens and the facts.
    sheet : Image
        The kept tokens as a picture to download.
    facts : dict
        The same as plain values.
    visual_tokens : int
        How many there were.
    """

    sides: list[tuple[str, str]]
    sheet: Image.Image
    facts: dict[str, Any]
    visual_tokens: int


class Desks:
    """Answers visitors with one model for pictures or clips, or with one for each.

    Parameters
    ----------
    model_name : str
        What visitors are told.
    load_desk : mapping
        For "picture", "clip" or both: how to load a desk for it, called when it is first needed.
    most_pixels : int
        Larger pictures are refused.
    most_tokens : int
        Where the budget's slider ends before anything was asked.
    """

    def __init__(
        self,
        model_name: str,
        load_desk: Mapping[str, Callable[[], ModelDesk]],
        *,
        most_pixels: int,
        most_tokens: int = 576,
    ) -> None:
        self.model_name = model_name
        self.most_pixels = most_pixels
        self.most_tokens = most_tokens
        self.media = tuple(load_desk)
        self._load_desk = load_desk
        self._desks: dict[str, ModelDesk] = {}

    @property
    def depth(self) -> int:
        """Blocks of the decoder."""
        return self._open(self.media[0]).depth

    def list_methods(self) -> list[str]:
        """The methods that run on the model, without those that need weights of their own."""
        family = self._open(self.media[0]).family
        return [
            entry.name
            for entry in read_methods()
            if family in entry.families and entry.name not in NEEDS_TRAINING
        ]

    def list_questions(self, medium: str, scene: int) -> list[str]:
        """The questions that a drawn scene comes with."""
        return list(_draw_scene(medium, scene).answers)

    def describe_upload(self, setup: Setup) -> str:
        """What visitors must know who ask a bundled model about an image or video of theirs."""
        if not setup.uploaded or self.model_name not in MODELS:
            return ""
        return (
            f"{self._open(setup.medium).name} knows only the scenes that tokencover draws: its "
            "answers about other images or videos are meaningless. To ask about them, open the "
            "studio with another model: tokencover studio --model NAME."
        )

    def draw_number(self) -> int:
        """Some scene."""
        return random.randrange(100_000)

    def answer(self, request: StudioRequest) -> StudioPage:
        """Answer with all tokens, with the method, and with another one to compare."""
        setup = request.setup
        desk = self._open(setup.medium)
        medium, right = self._find_medium(request)
        names = [setup.method, *([setup.other] if setup.other else [])]
        methods = [make_studio_method(name, setup) for name in names]
        plain = desk.ask(medium, setup.question, None)
        answers = [desk.ask(medium, setup.question, method) for method in methods]
        seen = medium_as_seen(medium, desk.processor)
        sides = [
            (render_kept(name, seen, answer), render_answer(name, answer, plain, right))
            for name, answer in zip(names, answers, strict=True)
        ]
        facts = [
            export_answer(setup.question, name, answer, plain)
            for name, answer in zip(names, answers, strict=True)
        ]
        sheets = [
            _draw_sheet(seen, f"{name}: {setup.question} {answer.text}", answer)
            for name, answer in zip(names, answers, strict=True)
        ]
        return StudioPage(
            sides=[*sides, ("", "")][:2],
            sheet=flow(sheets, sum(sheet.width + GAP for sheet in sheets), GAP),
            facts={"model": desk.name, "answers": facts},
            visual_tokens=_count_tokens(answers[0]),
        )

    def play(self, request: StudioRequest) -> str:
        """The order of choice as a moving picture on the page."""
        setup = request.setup
        desk = self._open(setup.medium)
        medium, _ = self._find_medium(request)
        answer = desk.ask(medium, setup.question, make_studio_method(setup.method, setup))
        seen = medium_as_seen(medium, desk.processor)
        if not isinstance(seen, Image.Image):
            raise InputError("the order of choice is played for pictures only; ask about one.")
        if answer.trace is None:
            raise InputError("nothing was pruned, so there is no order of choice.")
        film = base64.b64encode(animate_choice(seen, answer.trace, answer.words)).decode("ascii")
        return f'<img alt="tokens in the order of their choice" src="data:image/gif;base64,{film}">'

    def _open(self, medium: str) -> ModelDesk:
        if medium not in self._load_desk:
            raise InputError(f"{self.model_name} takes no {medium}: ask about a {self.media[0]}.")
        if medium not in self._desks:
            self._desks[medium] = self._load_desk[medium]()
        return self._desks[medium]

    def _find_medium(self, request: StudioRequest) -> tuple[Medium, str]:
        """What is asked about, and the right answer if it is known."""
        setup = request.setup
        if setup.medium == "picture" and request.picture:
            return self._open_upload(request.picture), ""
        if setup.medium == "clip" and request.clip:
            clip = open_clip(request.clip, name="your clip", most_pixels=self.most_pixels)
            return list(clip), ""
        scene = _draw_scene(setup.medium, setup.scene)
        return scene.medium, scene.answers.get(setup.question, "")

    def _open_upload(self, path: str) -> Image.Image:
        return open_picture(path, "your picture", most_pixels=self.most_pixels)


def make_studio_method(name: str, setup: Setup) -> Method:
    """Make a method with the page's settings, where it has them and does not name its own."""
    specs = parse_methods(name)
    if len(specs) != 1:
        raise InputError(f"give one method, for example fastv:after=3, not {name!r}.")
    spec = dict(specs[0])
    kind: Any = METHODS[spec["method"]]
    known = {field.name for field in fields(kind)}
    given: dict[str, Any] = {"budget": setup.budget, "split": setup.split}
    if setup.after != OWN:
        given["after"] = setup.after
    return make_method({**{key: value for key, value in given.items() if key in known}, **spec})


@lru_cache(maxsize=32)
def _draw_scene(medium: str, number: int) -> DrawnScene:
    return get_scene_set(MEDIA[medium]).draw(number, False)


def _draw_sheet(medium: Medium, title: str, answer: StudioAnswer) -> Image.Image:
    trace = answer.trace
    if trace is None or len({index for index, _ in trace.grids}) > 1:
        return medium if isinstance(medium, Image.Image) else medium[0]
    return panels([medium], trace, answer.words, title=title)


def _count_tokens(answer: StudioAnswer) -> int:
    return 1 if answer.trace is None else answer.trace.visual_tokens


def list_media(kinds: Sequence[str]) -> tuple[str, ...]:
    """Our words for what a processor takes."""
    return tuple(word for word, kind in MEDIA.items() if kind in kinds)
