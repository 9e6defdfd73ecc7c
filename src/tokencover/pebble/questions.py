"""Questions about a scene, in two families, with answers read from the scene.

*Fine* questions hang on a patch or two; *coarse* ones on the whole picture. Whoever answers
without looking can only guess: answers are drawn evenly first, and what is asked is chosen to
fit. Each kind has several phrasings and a one-word answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.random import Generator

from tokencover.errors import InputError
from tokencover.pebble.scene import GRID, Scene, Thing
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
        Key of ``KINDS``.
    text
        Words of the question, separated by spaces.
    answer
        One word.
    """

    kind: str
    text: str
    answer: str

    @property
    def family(self) -> str:
        """``"fine"`` or ``"coarse"``."""
        return FAMILIES[self.kind]


T = TypeVar("T", bound=Hashable)


def _pick(rng: Generator, options: list[T]) -> T:
    return options[int(rng.integers(len(options)))]


def _even(rng: Generator, pairs: Iterable[tuple[str, T]]) -> tuple[str, T] | None:
    """Draw an answer evenly among those possible, then something to ask that has this answer."""
    groups: dict[str, list[T]] = {}
    for answer, subject in pairs:
        groups.setdefault(answer, []).append(subject)
    if not groups:
        return None
    answer = _pick(rng, sorted(groups))
    return answer, _pick(rng, groups[answer])


def _sole(things: tuple[Thing, ...], *names: str) -> list[Thing]:
    """Things that no other thing equals in all the named attributes."""
    keys = [tuple(getattr(thing, name) for name in names) for thing in things]
    counts = Counter(keys)
    return [thing for thing, key in zip(things, keys, strict=True) if counts[key] == 1]


def _ask(rng: Generator, kind: str, answer: str, phrasings: tuple[str, ...]) -> Question:
    return Question(kind, _pick(rng, list(phrasings)), answer)


def _exist(scene: Scene, rng: Generator) -> Question | None:
    present = {(thing.color, thing.shape) for thing in scene.things}
    colors, shapes = {c for c, _ in present}, {s for _, s in present}
    pairs = [(c, s) for c in COLORS for s in SHAPES if c in colors and s in shapes]
    drawn = _even(rng, [("yes" if pair in present else "no", pair) for pair in pairs])
    if drawn is None:
        return None
    answer, (color, shape) = drawn
    name = f"{color} {shape}"
    return _ask(
        rng,
        "exist",
        answer,
        (f"is there a {name} ?", f"do you see a {name} ?", f"does the picture have a {name} ?"),
    )


def _color(scene: Scene, rng: Generator) -> Question | None:
    drawn = _even(rng, [(t.color, t) for t in _sole(scene.things, "shape", "digit")])
    if drawn is None:
        return None
    answer, thing = drawn
    name = f"{thing.shape} marked {thing.digit}"
    return _ask(
        rng,
        "color",
        answer,
        (
            f"what color is the {name} ?",
            f"which color has the {name} ?",
            f"the {name} is of what color ?",
        ),
    )


def _shape(scene: Scene, rng: Generator) -> Question | None:
    drawn = _even(rng, [(t.shape, t) for t in _sole(scene.things, "color", "digit")])
    if drawn is None:
        return None
    answer, thing = drawn
    name = f"{thing.color} thing marked {thing.digit}"
    return _ask(
        rng,
        "shape",
        answer,
        (
            f"what shape is the {name} ?",
            f"which shape has the {name} ?",
            f"the {name} is of what shape ?",
        ),
    )


def _read(scene: Scene, rng: Generator) -> Question | None:
    drawn = _even(rng, [(t.digit, t) for t in _sole(scene.things, "color", "shape")])
    if drawn is None:
        return None
    answer, thing = drawn
    name = f"{thing.color} {thing.shape}"
    return _ask(
        rng,
        "read",
        answer,
        (
            f"what number is on the {name} ?",
            f"which number is printed on the {name} ?",
            f"what is the number of the {name} ?",
        ),
    )


def _where(scene: Scene, rng: Generator) -> Question | None:
    drawn = _even(rng, [(t.region, t) for t in _sole(scene.things, "color", "shape")])
    if drawn is None:
        return None
    answer, thing = drawn
    name = f"{thing.color} {thing.shape}"
    return _ask(
        rng,
        "where",
        answer,
        (
            f"where is the {name} ?",
            f"where do you see the {name} ?",
            f"in which part of the picture is the {name} ?",
        ),
    )


def _animal_color(scene: Scene, rng: Generator) -> Question | None:
    drawn = _even(rng, [(animal.color, animal.kind) for animal in scene.animals])
    if drawn is None:
        return None
    answer, kind = drawn
    return _ask(
        rng,
        "animal_color",
        answer,
        (
            f"what color is the {kind} ?",
            f"which color has the {kind} ?",
            f"the {kind} is of what color ?",
        ),
    )


def _animal_name(scene: Scene, rng: Generator) -> Question | None:
    drawn = _even(rng, [(animal.kind, animal.region) for animal in scene.animals])
    if drawn is None:
        return None
    answer, region = drawn
    return _ask(
        rng,
        "animal_name",
        answer,
        (
            f"which animal is at the {region} ?",
            f"what animal do you see at the {region} ?",
            f"which small animal lives at the {region} ?",
        ),
    )


def _most(scene: Scene, rng: Generator, kind: str, attribute: str) -> Question | None:
    counts = Counter(getattr(thing, attribute) for thing in scene.things).most_common(2)
    if counts[0][1] - counts[1][1] < CLEARLY_MORE:
        return None
    return _ask(
        rng,
        kind,
        counts[0][0],
        (
            f"which {attribute} is most common ?",
            f"what {attribute} is seen most often ?",
            f"what {attribute} have most of the things ?",
        ),
    )


def _common_color(scene: Scene, rng: Generator) -> Question | None:
    return _most(scene, rng, "common_color", "color")


def _common_shape(scene: Scene, rng: Generator) -> Question | None:
    return _most(scene, rng, "common_shape", "shape")


def _classes(scene: Scene) -> dict[str, list[Thing]]:
    """Things of each colour ("red things") and of each shape ("stars")."""
    groups: dict[str, list[Thing]] = {}
    for thing in scene.things:
        groups.setdefault(f"{thing.color} things", []).append(thing)
        groups.setdefault(PLURALS[thing.shape], []).append(thing)
    return groups


def _more(scene: Scene, rng: Generator) -> Question | None:
    sizes = {name: len(things) for name, things in _classes(scene).items()}
    pairs: list[tuple[str, tuple[str, str]]] = []
    for first, count in sizes.items():
        for second, other in sizes.items():
            alike = first.endswith("things") == second.endswith("things")
            if alike and abs(count - other) >= CLEARLY_MORE:
                winner = first if count > other else second
                pairs.append((winner.removesuffix(" things"), (first, second)))
    drawn = _even(rng, pairs)
    if drawn is None:
        return None
    answer, (first, second) = drawn
    either = f"{first.removesuffix(' things')} or {second}"
    return _ask(
        rng,
        "more",
        answer,
        (
            f"are there more {either} ?",
            f"do you see more {either} ?",
            f"does the picture have more {either} ?",
        ),
    )


def _leaning(
    scene: Scene, rng: Generator, kind: str, attribute: str, ends: tuple[str, str]
) -> Question | None:
    near, far = ends
    pairs = []
    for name, things in _classes(scene).items():
        beyond = sum(getattr(thing, attribute) >= GRID // 2 for thing in things)
        excess = 2 * beyond - len(things)
        if abs(excess) >= CLEARLY_ASIDE:
            pairs.append((far if excess > 0 else near, name))
    drawn = _even(rng, pairs)
    if drawn is None:
        return None
    answer, name = drawn
    return _ask(
        rng,
        kind,
        answer,
        (
            f"are the {name} mostly at the {near} or the {far} ?",
            f"are most of the {name} at the {near} or the {far} ?",
            f"{near} or {far} : where are most of the {name} ?",
        ),
    )


def _side(scene: Scene, rng: Generator) -> Question | None:
    return _leaning(scene, rng, "side", "column", ("left", "right"))


def _level(scene: Scene, rng: Generator) -> Question | None:
    return _leaning(scene, rng, "level", "row", ("top", "bottom"))


def _empty(scene: Scene, rng: Generator) -> Question | None:
    return _ask(
        rng,
        "empty",
        scene.empty_region,
        (
            "which part of the picture is empty ?",
            "where is the picture free of objects ?",
            "which part of the picture holds nothing ?",
        ),
    )


def _place(scene: Scene, rng: Generator) -> Question | None:
    return _ask(
        rng,
        "place",
        scene.place,
        ("which place is this ?", "what kind of place is shown ?", "what place do you see ?"),
    )


Asker = Callable[[Scene, Generator], Question | None]

_FINE_KINDS: Final[dict[str, Asker]] = {
    "exist": _exist,
    "color": _color,
    "shape": _shape,
    "read": _read,
    "where": _where,
    "animal_color": _animal_color,
    "animal_name": _animal_name,
}
_COARSE_KINDS: Final[dict[str, Asker]] = {
    "common_color": _common_color,
    "common_shape": _common_shape,
    "more": _more,
    "side": _side,
    "level": _level,
    "empty": _empty,
    "place": _place,
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
    questions = []
    for kind in kinds:
        if kind not in _ASKERS:
            raise InputError(f"no kind of question is called {kind!r}; choose from {KINDS}")
        question = _ASKERS[kind](scene, rng)
        if question is not None:
            questions.append(question)
    return questions
