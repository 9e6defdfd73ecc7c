"""What questions about scenes and about clips share.

They come in two families: *fine* questions depend on a patch or two, *coarse* ones on the whole
picture. An answer without looking can only be a guess: answers are drawn evenly first, and what is
asked is chosen to fit. Each kind has several phrasings (`phrasings`) and a one-word answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.random import Generator

from tokencover.errors import InputError
from tokencover_models.pebble.data.scene import Animal, Thing
from tokencover_models.pebble.vocabulary import COLOR_WORDS, PLURALS, SHAPES

FINE: Final = "fine"
COARSE: Final = "coarse"


@dataclass(frozen=True)
class Question:
    """One question with its answer.

    Attributes
    ----------
    kind
        One of the kinds of its set.
    text
        Words of the question, separated by spaces.
    answer
        One word.
    """

    kind: str
    text: str
    answer: str


class SceneLike(Protocol):
    """What most questions need to know of a scene, or of a clip."""

    @property
    def seed(self) -> int:
        """What it was made from."""

    @property
    def place(self) -> str:
        """Kind of background."""

    @property
    def things(self) -> Sequence[Thing]:
        """Its objects."""

    @property
    def animals(self) -> Sequence[Animal]:
        """Its animals."""


T = TypeVar("T", bound=Hashable)
Draft = tuple[str, dict[str, str]] | None
"""An answer, with what to fill into the phrasings; None where a question cannot be asked."""


def pick(rng: Generator, options: list[T]) -> T:
    """Pick one of several."""
    return options[int(rng.integers(len(options)))]


def draw_evenly(rng: Generator, pairs: Iterable[tuple[str, T]]) -> tuple[str, T] | None:
    """Draw an answer evenly among those possible, then something to ask that has this answer."""
    groups: dict[str, list[T]] = {}
    for answer, subject in pairs:
        groups.setdefault(answer, []).append(subject)
    if not groups:
        return None
    answer = pick(rng, sorted(groups))
    return answer, pick(rng, groups[answer])


def draw_named(rng: Generator, pairs: Iterable[tuple[str, str]], slot: str = "name") -> Draft:
    """Draw evenly among pairs of an answer and what fills the slot of the phrasings."""
    drawn = draw_evenly(rng, pairs)
    return None if drawn is None else (drawn[0], {slot: drawn[1]})


def _get_sole(things: Sequence[Thing], *names: str) -> list[Thing]:
    """Things that no other thing equals in all the named attributes."""
    keys = [tuple(getattr(thing, name) for name in names) for thing in things]
    counts = Counter(keys)
    return [thing for thing, key in zip(things, keys, strict=True) if counts[key] == 1]


def ask_existence(scene: SceneLike, rng: Generator) -> Draft:
    """Whether there is a thing of some colour and shape, both of which are there."""
    present = {(thing.color, thing.shape) for thing in scene.things}
    colors, shapes = {c for c, _ in present}, {s for _, s in present}
    pairs = [(c, s) for c in COLOR_WORDS for s in SHAPES if c in colors and s in shapes]
    return draw_named(rng, [("yes" if pair in present else "no", " ".join(pair)) for pair in pairs])


def ask_color(scene: SceneLike, rng: Generator) -> Draft:
    """Colour of a thing named by shape and number."""
    sole = _get_sole(scene.things, "shape", "digit")
    return draw_named(rng, [(t.color, f"{t.shape} marked {t.digit}") for t in sole])


def ask_shape(scene: SceneLike, rng: Generator) -> Draft:
    """Shape of a thing named by colour and number."""
    sole = _get_sole(scene.things, "color", "digit")
    return draw_named(rng, [(t.shape, f"{t.color} thing marked {t.digit}") for t in sole])


def ask_number(scene: SceneLike, rng: Generator) -> Draft:
    """Number printed on a thing named by colour and shape."""
    sole = _get_sole(scene.things, "color", "shape")
    return draw_named(rng, [(t.digit, f"{t.color} {t.shape}") for t in sole])


def ask_region(scene: SceneLike, rng: Generator) -> Draft:
    """Region of a thing named by colour and shape."""
    sole = _get_sole(scene.things, "color", "shape")
    return draw_named(rng, [(t.region, f"{t.color} {t.shape}") for t in sole])


def ask_animal_color(scene: SceneLike, rng: Generator) -> Draft:
    """Colour of an animal."""
    return draw_named(rng, [(animal.color, animal.kind) for animal in scene.animals])


def get_most_common(things: Iterable[Thing], attribute: str, margin: int) -> Draft:
    """Value of an attribute that more things have than any other, by a margin."""
    counts = Counter(getattr(thing, attribute) for thing in things).most_common(2)
    if not counts:
        return None
    most, runner_up = counts[0], counts[1] if len(counts) > 1 else ("", 0)
    return (most[0], {}) if most[1] - runner_up[1] >= margin else None


def group_things(things: Iterable[T]) -> dict[str, list[T]]:
    """Things of each colour ("red things") and of each shape ("stars")."""
    groups: dict[str, list[T]] = {}
    for thing in things:
        attributes: Any = thing
        groups.setdefault(f"{attributes.color} things", []).append(thing)
        groups.setdefault(PLURALS[attributes.shape], []).append(thing)
    return groups


def ask_more(rng: Generator, things: Iterable[Thing], margin: int) -> Draft:
    """Which of two groups of things is larger, by a margin."""
    sizes = {name: len(members) for name, members in group_things(things).items()}
    pairs: list[tuple[str, str]] = []
    for first, count in sizes.items():
        for second, other in sizes.items():
            alike = first.endswith("things") == second.endswith("things")
            if alike and abs(count - other) >= margin:
                winner = first if count > other else second
                either = f"{first.removesuffix(' things')} or {second}"
                pairs.append((winner.removesuffix(" things"), either))
    return draw_named(rng, pairs, "either")


def ask_place(scene: SceneLike, _: Generator) -> Draft:
    """The kind of background."""
    return scene.place, {}


Asker = Callable[[Any, Generator], Draft]
"""Drafts one question about a scene, or about a clip."""

SHARED_FINE: Final[dict[str, Asker]] = {
    "exist": ask_existence,
    "color": ask_color,
    "shape": ask_shape,
    "read": ask_number,
    "where": ask_region,
    "animal_color": ask_animal_color,
}
"""Fine kinds that scenes and clips can be asked alike."""


@dataclass(frozen=True)
class QuestionSet:
    """All kinds of questions about scenes, or about clips.

    Attributes
    ----------
    fine, coarse
        What drafts the questions of each kind.
    phrasings
        How each kind is put into words; may hold more kinds.
    salt
        Keeps the random numbers of two sets apart.
    """

    fine: Mapping[str, Asker]
    coarse: Mapping[str, Asker]
    phrasings: Mapping[str, tuple[str, ...]]
    salt: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of all kinds, the fine ones first."""
        return (*self.fine, *self.coarse)

    @property
    def families(self) -> dict[str, str]:
        """Family of each kind: fine or coarse."""
        return {**dict.fromkeys(self.fine, FINE), **dict.fromkeys(self.coarse, COARSE)}

    def ask(
        self, scene: SceneLike, kinds: Iterable[str] | None = None, turn: int = 0
    ) -> list[Question]:
        """Ask one question of each kind that the scene allows.

        Parameters
        ----------
        scene
            What is asked about: a scene, or a clip.
        kinds
            Some of `kinds`, repeats allowed; by default all of them, once each.
        turn
            Another turn gives other questions about the same scene.

        Returns
        -------
        list of Question
            The same ones for the same scene, kinds and turn.
        """
        askers = {**self.fine, **self.coarse}
        rng = np.random.default_rng([scene.seed, turn, self.salt])
        questions = []
        for kind in self.kinds if kinds is None else kinds:
            if kind not in askers:
                raise InputError(
                    f"no kind of question is called {kind!r}; choose from {tuple(askers)}"
                )
            draft = askers[kind](scene, rng)
            if draft is not None:
                answer, slots = draft
                text = pick(rng, list(self.phrasings[kind])).format(**slots)
                questions.append(Question(kind, text, answer))
        return questions
