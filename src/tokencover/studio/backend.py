"""The studio's answers: one model, or pebble's two, one question at a time.

A model is pruned for one answer only. A lock keeps questions of several visitors apart, so no
answer is given with the pruning of another one.
"""

from __future__ import annotations

import base64
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

from PIL import Image

from tokencover.bundled_models import MODELS, DrawnScene, get_scene_set
from tokencover.catalog import read_methods
from tokencover.errors import InputError
from tokencover.families import family_of
from tokencover.images import open_image, open_video
from tokencover.methods import METHODS, Method, make_method, parse_methods
from tokencover.prompting import Kind, Medium, list_kinds
from tokencover.studio.facts import export_answer, render_answer, render_kept
from tokencover.studio.link import METHOD_DEFAULT, Setup
from tokencover.visualization import (
    GAP,
    Answer,
    animate_choice,
    flow,
    generate_answer,
    medium_as_seen,
    panels,
)


class StudioModel:
    """Answers questions with one model, as `tokencover.loading.load` returns it."""

    def __init__(self, name: str, model: Any, processor: Any, *, max_new_tokens: int = 32) -> None:
        self.name = name
        self.processor = processor
        self.max_new_tokens = max_new_tokens
        self.num_layers = len(family_of(model).layers(model))
        self.family = family_of(model).name
        self._model = model
        self._lock = threading.Lock()
        self._is_warm = False

    @property
    def kinds(self) -> frozenset[Kind]:
        """The media that the model takes."""
        return list_kinds(self.processor)

    def ask(self, medium: Medium, question: str, method: Method | None) -> Answer:
        """Answer a question about an image or the frames of a video, pruned by a method or not."""
        if not question.strip():
            raise InputError("The question is empty. Ask for example 'what is this ?'.")
        model, processor = self._model, self.processor
        with self._lock:
            if not self._is_warm:  # the first call is not timed
                generate_answer(model, processor, medium, question, None, 1)
                self._is_warm = True
            return generate_answer(model, processor, medium, question, method, self.max_new_tokens)


MEDIA: Final[tuple[Kind, ...]] = ("image", "video")
NEEDS_TRAINING: Final = ("twigvlm",)


@dataclass(frozen=True)
class StudioRequest:
    """A visitor's setup, and the path of an uploaded file."""

    setup: Setup
    image: str | None = None
    video: str | None = None


@dataclass(frozen=True)
class StudioResult:
    """What the page shows.

    `sides` are the kept tokens and the facts for the method, and the one it is compared with.
    `sheet` and `facts` are for downloads. `visual_tokens` is their number before pruning.
    """

    sides: list[tuple[str, str]]
    sheet: Image.Image
    facts: dict[str, Any]
    visual_tokens: int


class StudioBackend:
    """Answers visitors with one model for images or videos, or with one for each.

    `loaders` has a function for "image", "video" or both, called when the model is first needed.
    Images above `max_pixels` are rejected; `max_tokens` is the first maximum of the budget.
    """

    def __init__(
        self,
        model_name: str,
        loaders: Mapping[str, Callable[[], StudioModel]],
        *,
        max_pixels: int,
        max_tokens: int = 576,
    ) -> None:
        self.model_name = model_name
        self.max_pixels = max_pixels
        self.max_tokens = max_tokens
        self.media = tuple(loaders)
        self._loaders = loaders
        self._models: dict[str, StudioModel] = {}

    @property
    def num_layers(self) -> int:
        """Number of decoder layers."""
        return self._open(self.media[0]).num_layers

    def list_methods(self) -> list[str]:
        """Return the methods that run on the model, without those that need trained weights."""
        family = self._open(self.media[0]).family
        return [
            entry.name
            for entry in read_methods()
            if family in entry.families and entry.name not in NEEDS_TRAINING
        ]

    def list_questions(self, medium: str, scene: int) -> list[str]:
        """Return the questions about a drawn scene."""
        return list(_draw_scene(medium, scene).answers)

    def describe_upload(self, setup: Setup) -> str:
        """Return a warning for visitors who ask a test model about their own image or video."""
        if not setup.uploaded or self.model_name not in MODELS:
            return ""
        return (
            f"{self._open(setup.medium).name} only knows scenes that tokencover draws: its answers "
            "about other images or videos are meaningless. To ask about them, open the studio with "
            "another model: tokencover studio --model NAME."
        )

    def draw_number(self) -> int:
        """Return the number of a random scene."""
        return random.randrange(100_000)

    def answer(self, request: StudioRequest) -> StudioResult:
        """Answer with all tokens, with the method, and with another one to compare."""
        setup = request.setup
        model = self._open(setup.medium)
        medium, right = self._load_medium(request)
        names = [setup.method, *([setup.other] if setup.other else [])]
        methods = [build_studio_method(name, setup) for name in names]
        plain = model.ask(medium, setup.question, None)
        answers = [model.ask(medium, setup.question, method) for method in methods]
        seen = medium_as_seen(medium, model.processor)
        sides, facts, sheets = [], [], []
        for name, answer in zip(names, answers, strict=True):
            kept = render_kept(name, seen, answer)
            sides.append((kept, render_answer(name, answer, plain, right)))
            facts.append(export_answer(setup.question, name, answer, plain))
            sheets.append(_draw_sheet(seen, f"{name}: {setup.question} {answer.text}", answer))
        trace = answers[0].trace
        return StudioResult(
            sides=[*sides, ("", "")][:2],
            sheet=flow(sheets, sum(sheet.width + GAP for sheet in sheets), GAP),
            facts={"model": model.name, "answers": facts},
            visual_tokens=1 if trace is None else trace.visual_tokens,
        )

    def play(self, request: StudioRequest) -> str:
        """Render the order of choice as an animation."""
        setup = request.setup
        model = self._open(setup.medium)
        medium, _ = self._load_medium(request)
        answer = model.ask(medium, setup.question, build_studio_method(setup.method, setup))
        seen = medium_as_seen(medium, model.processor)
        if not isinstance(seen, Image.Image):
            raise InputError("The order of choice can only be played for images.")
        if answer.trace is None:
            raise InputError("Nothing was pruned, so there is no order of choice.")
        animation = animate_choice(seen, answer.trace, answer.words)
        source = f"data:image/gif;base64,{base64.b64encode(animation).decode('ascii')}"
        return f'<img alt="tokens in the order of their choice" src="{source}">'

    def _open(self, medium: str) -> StudioModel:
        if medium not in self._loaders:
            raise InputError(
                f"{self.model_name} does not take {medium} input. Ask about a {self.media[0]}."
            )
        if medium not in self._models:
            self._models[medium] = self._loaders[medium]()
        return self._models[medium]

    def _load_medium(self, request: StudioRequest) -> tuple[Medium, str]:
        """Return what the question is about, and the reference answer if it is known."""
        setup = request.setup
        if setup.medium == "image" and request.image:
            return open_image(request.image, "your image", max_pixels=self.max_pixels), ""
        if setup.medium == "video" and request.video:
            frames = open_video(request.video, name="your video", max_pixels=self.max_pixels)
            return list(frames), ""
        scene = _draw_scene(setup.medium, setup.scene)
        return scene.medium, scene.answers.get(setup.question, "")


def build_studio_method(name: str, setup: Setup) -> Method:
    """Build a method with the page's settings where it has them and does not set its own."""
    specs = parse_methods(name)
    if len(specs) != 1:
        raise InputError(f"Pass one method, for example fastv:after=3, got {name!r}.")
    spec = dict(specs[0])
    kind: Any = METHODS[spec["method"]]
    known = {field.name for field in fields(kind)}
    settings: dict[str, Any] = {"budget": setup.budget, "split": setup.split}
    if setup.after != METHOD_DEFAULT:
        settings["after"] = setup.after
    return make_method({**{key: value for key, value in settings.items() if key in known}, **spec})


@lru_cache(maxsize=32)
def _draw_scene(medium: str, number: int) -> DrawnScene:
    return get_scene_set("video" if medium == "video" else "image").draw(number, False)


def _draw_sheet(medium: Medium, title: str, answer: Answer) -> Image.Image:
    trace = answer.trace
    if trace is None or len({index for index, _ in trace.grids}) > 1:
        return medium if isinstance(medium, Image.Image) else medium[0]
    return panels([medium], trace, answer.words, title=title)
