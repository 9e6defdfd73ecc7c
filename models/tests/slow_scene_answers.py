"""A second, slow reading of scenes: answers worked out from the words of a question alone."""

from __future__ import annotations

from collections import Counter

from tokencover_models.pebble.data import Scene, Thing
from tokencover_models.pebble.vocabulary import (
    ANIMALS,
    COLOR_WORDS,
    DIGITS,
    PLURALS,
    REGIONS,
    SHAPES,
)

SINGULAR = {plural: shape for shape, plural in PLURALS.items()}


def name_ninth(row: int, column: int) -> str:
    vertical = ["top", "", "bottom"][row * 3 // 24]
    horizontal = ["left", "", "right"][column * 3 // 24]
    return "-".join(word for word in (vertical, horizontal) if word) or "center"


def list_matching(scene: Scene, words: list[str]) -> list[Thing]:
    found = []
    for thing in scene.things:
        wanted = {word for word in words if word in (*COLOR_WORDS, *SHAPES, *DIGITS)}
        if wanted <= {thing.color, thing.shape, thing.digit}:
            found.append(thing)
    return found


def list_members(scene: Scene, name: str) -> list[Thing]:
    key = SINGULAR.get(name, name)
    return [thing for thing in scene.things if key in (thing.color, thing.shape)]


def list_classes(words: list[str]) -> list[str]:
    return [word for word in words if word in SINGULAR or word in COLOR_WORDS]


def take_only(things: list[Thing]) -> Thing:
    assert len(things) == 1, "the question must name exactly one thing"
    return things[0]


def answer_fine(scene: Scene, kind: str, words: list[str]) -> str:
    if kind == "exist":
        return "yes" if list_matching(scene, words) else "no"
    if kind in {"color", "shape"}:
        return str(getattr(take_only(list_matching(scene, words)), kind))
    if kind == "read":
        return take_only(list_matching(scene, words)).digit
    if kind == "where":
        thing = take_only(list_matching(scene, words))
        return name_ninth(thing.row, thing.column)
    if kind == "animal_color":
        (name,) = [word for word in words if word in ANIMALS]
        (animal,) = [animal for animal in scene.animals if animal.kind == name]
        return animal.color
    (region,) = [word for word in words if word in REGIONS]
    (animal,) = [a for a in scene.animals if name_ninth(a.row, a.column) == region]
    return animal.kind


def answer_coarse(scene: Scene, kind: str, words: list[str]) -> str:
    if kind in {"common_color", "common_shape"}:
        attribute = kind.removeprefix("common_")
        (first, most), (_, next_most) = Counter(
            getattr(thing, attribute) for thing in scene.things
        ).most_common(2)
        assert most > next_most
        return str(first)
    if kind == "more":
        first, second = list_classes(words)
        counts = len(list_members(scene, first)), len(list_members(scene, second))
        assert counts[0] != counts[1]
        return first if counts[0] > counts[1] else second
    if kind in {"side", "level"}:
        (name,) = list_classes(words)
        places = [t.column if kind == "side" else t.row for t in list_members(scene, name)]
        near, far = sum(place < 12 for place in places), sum(place >= 12 for place in places)
        assert near != far
        ends = ("left", "right") if kind == "side" else ("top", "bottom")
        return ends[far > near]
    if kind == "empty":
        full = {name_ninth(thing.row, thing.column) for thing in scene.things}
        (empty,) = set(REGIONS) - full
        return empty
    return scene.place


def answer_slowly(scene: Scene, kind: str, text: str) -> str:
    """Answer a question the slow way."""
    words = text.split()
    fine_kinds = {"exist", "color", "shape", "read", "where", "animal_color", "animal_name"}
    return (answer_fine if kind in fine_kinds else answer_coarse)(scene, kind, words)
