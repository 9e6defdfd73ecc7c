"""Questions about a scene, in two families, with answers read from the scene.

*Fine* questions hang on a patch or two; *coarse* ones on the whole picture. Whoever answers
without looking can only guess: answers are drawn evenly first, and what is asked is chosen to
fit. Each kind has several phrasings (`phrasings`) and a one-word answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from numpy.random import Generator

from tokencover.errors import InputError
from tokencover.pebble.phrasings import PHRASINGS
from tokencover.pebble.scene import GRID, Animal, Scene, Thing
from tokencover.pebble.vocabulary import COLORS, PLURALS, SHAPES

FINE: Final = "fine"
COARSE: Final = "coarse"
CLEARLY_MORE: Final = 3
CLEARLY_ASIDE: Final = 4


@dataclass(frozen=True)
class Question:
    """One question with its answer.

    Attributes
    ----------
    kind
        Key of the askers.
    text
        Words of the question, separated by spaces.
    answer
        One word.
    """

    kind: str
    text: str
    answer: str


class Content(Protocol):
    """What most questions need to know of a scene, or of a clip."""

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
Drawn = tuple[str, dict[str, str]] | None
"""An answer, with what to fill into the phrasings; None where a question cannot be asked."""


def pick(rng: Generator, options: list[T]) -> T:
    """Draw one of several."""
    return options[int(rng.integers(len(options)))]


def evenly(rng: Generator, pairs: Iterable[tuple[str, T]]) -> tuple[str, T] | None:
    """Draw an answer evenly among those possible, then something to ask that has this answer."""
    groups: dict[str, list[T]] = {}
    for answer, subject in pairs:
        groups.setdefault(answer, []).append(subject)
    if not groups:
        return None
    answer = pick(rng, sorted(groups))
    return answer, pick(rng, groups[answer])


def named(rng: Generator, pairs: Iterable[tuple[str, str]], slot: str = "name") -> Drawn:
    """Draw evenly among pairs of an answer and what fills the slot of the phrasings."""
    drawn = evenly(rng, pairs)
    return None if drawn is None else (drawn[0], {slot: drawn[1]})


def _sole(things: Sequence[Thing], *names: str) -> list[Thing]:
    """Things that no other thing equals in all the named attributes."""
    keys = [tuple(getattr(thing, name) for name in names) for thing in things]
    counts = Counter(keys)
    return [thing for thing, key in zip(things, keys, strict=True) if counts[key] == 1]


def exist(scene: Content, rng: Generator) -> Drawn:
    """Whether there is a thing of some colour and shape, both of which are there."""
    present = {(thing.color, thing.shape) for thing in scene.things}
    colors, shapes = {c for c, _ in present}, {s for _, s in present}
    pairs = [(c, s) for c in COLORS for s in SHAPES if c in colors and s in shapes]
    return named(rng, [("yes" if pair in present else "no", " ".join(pair)) for pair in pairs])


def color(scene: Content, rng: Generator) -> Drawn:
    """Colour of a thing named by shape and number."""
    sole = _sole(scene.things, "shape", "digit")
    return named(rng, [(t.color, f"{t.shape} marked {t.digit}") for t in sole])


def shape(scene: Content, rng: Generator) -> Drawn:
    """Shape of a thing named by colour and number."""
    sole = _sole(scene.things, "color", "digit")
    return named(rng, [(t.shape, f"{t.color} thing marked {t.digit}") for t in sole])


def read(scene: Content, rng: Generator) -> Drawn:
    """Number printed on a thing named by colour and shape."""
    sole = _sole(scene.things, "color", "shape")
    return named(rng, [(t.digit, f"{t.color} {t.shape}") for t in sole])


def where(scene: Content, rng: Generator) -> Drawn:
    """Region of a thing named by colour and shape."""
    sole = _sole(scene.things, "color", "shape")
    return named(rng, [(t.region, f"{t.color} {t.shape}") for t in sole])


def animal_color(scene: Content, rng: Generator) -> Drawn:
    """Colour of an animal."""
    return named(rng, [(animal.color, animal.kind) for animal in scene.animals])


def _animal_name(scene: Scene, rng: Generator) -> Drawn:
    return named(rng, [(animal.kind, animal.region) for animal in scene.animals], "place")


def most_common(things: Iterable[Thing], attribute: str, margin: int) -> Drawn:
    """Value of an attribute that more things have than any other, by a margin."""
    counts = Counter(getattr(thing, attribute) for thing in things).most_common(2)
    return (counts[0][0], {}) if counts[0][1] - counts[1][1] >= margin else None


def _common_color(scene: Scene, _: Generator) -> Drawn:
    return most_common(scene.things, "color", CLEARLY_MORE)


def _common_shape(scene: Scene, _: Generator) -> Drawn:
    return most_common(scene.things, "shape", CLEARLY_MORE)


def classes(things: Iterable[T]) -> dict[str, list[T]]:
    """Things of each colour ("red things") and of each shape ("stars")."""
    groups: dict[str, list[T]] = {}
    for thing in things:
        attributes: Any = thing
        groups.setdefault(f"{attributes.color} things", []).append(thing)
        groups.setdefault(PLURALS[attributes.shape], []).append(thing)
    return groups


def more_of(rng: Generator, sizes: Mapping[str, int], margin: int) -> Drawn:
    """Which of two classes is larger, by a margin."""
    pairs: list[tuple[str, str]] = []
    for first, count in sizes.items():
        for second, other in sizes.items():
            alike = first.endswith("things") == second.endswith("things")
            if alike and abs(count - other) >= margin:
                winner = first if count > other else second
                either = f"{first.removesuffix(' things')} or {second}"
                pairs.append((winner.removesuffix(" things"), either))
    return named(rng, pairs, "either")


def _more(scene: Scene, rng: Generator) -> Drawn:
    sizes = {name: len(things) for name, things in classes(scene.things).items()}
    return more_of(rng, sizes, CLEARLY_MORE)


def _leaning(scene: Scene, rng: Generator, attribute: str, ends: tuple[str, str]) -> Drawn:
    near, far = ends
    pairs = []
    for name, things in classes(scene.things).items():
        beyond = sum(getattr(thing, attribute) >= GRID // 2 for thing in things)
        excess = 2 * beyond - len(things)
        if abs(excess) >= CLEARLY_ASIDE:
            pairs.append((far if excess > 0 else near, name))
    return named(rng, pairs)


def _side(scene: Scene, rng: Generator) -> Drawn:
    return _leaning(scene, rng, "column", ("left", "right"))


def _level(scene: Scene, rng: Generator) -> Drawn:
    return _leaning(scene, rng, "row", ("top", "bottom"))


def _empty(scene: Scene, _: Generator) -> Drawn:
    return scene.empty_region, {}


def place(scene: Content, _: Generator) -> Drawn:
    """The kind of background."""
    return scene.place, {}


Asker = Callable[[Any, Generator], Drawn]

_FINE_KINDS: Final[dict[str, Asker]] = {
    "exist": exist,
    "color": color,
    "shape": shape,
    "read": read,
    "where": where,
    "animal_color": animal_color,
    "animal_name": _animal_name,
}
_COARSE_KINDS: Final[dict[str, Asker]] = {
    "common_color": _common_color,
    "common_shape": _common_shape,
    "more": _more,
    "side": _side,
    "level": _level,
    "empty": _empty,
    "place": place,
}
_ASKERS: Final[dict[str, Asker]] = {**_FINE_KINDS, **_COARSE_KINDS}
KINDS: Final = tuple(_ASKERS)
FAMILIES: Final = {kind: FINE if kind in _FINE_KINDS else COARSE for kind in KINDS}


def ask(scene: Scene, kinds: Iterable[str] = KINDS, turn: int = 0) -> list[Question]:
    """Ask one question of each kind that the scene allows.

    Parameters
    ----------
    scene
        What is asked about.
    kinds
        Keys of ``KINDS``, repeats allowed.
    turn
        Another turn gives other questions about the same scene.

    Returns
    -------
    list of Question
        The same ones for the same scene, kinds and turn.
    """
    rng = np.random.default_rng([scene.seed, turn, 0xA5C])
    return ask_with(_ASKERS, PHRASINGS, scene, kinds, rng)


def ask_with(
    askers: Mapping[str, Asker],
    phrasings: Mapping[str, tuple[str, ...]],
    scene: Any,
    kinds: Iterable[str],
    rng: Generator,
) -> list[Question]:
    """Draw what each kind asks, then its wording."""
    questions = []
    for kind in kinds:
        if kind not in askers:
            raise InputError(f"no kind of question is called {kind!r}; choose from {tuple(askers)}")
        drawn = askers[kind](scene, rng)
        if drawn is not None:
            answer, subject = drawn
            text = pick(rng, list(phrasings[kind])).format(**subject)
            questions.append(Question(kind, text, answer))
    return questions
