"""A second, slow reading of clips: answers worked out from the words of a question alone."""

from __future__ import annotations

from collections import Counter

from tests.pebble.reading import SINGULAR, classes_in
from tokencover.pebble.clips.clip import Clip, Visitor
from tokencover.pebble.vocabulary import ANIMALS, COLORS, DIGITS, FRAMES, SHAPES

ROWS, COLUMNS = ("top", "", "bottom"), ("left", "", "right")


def named(clip: Clip, words: list[str]) -> list[Visitor]:
    wanted = {word for word in words if word in (*COLORS, *SHAPES, *DIGITS)}
    return [t for t in clip.things if wanted <= {t.color, t.shape, t.digit}]


def shown(clip: Clip, name: str) -> list[int]:
    """Frames that show something of a class, one entry for each thing and frame."""
    key = SINGULAR.get(name, name)
    return [f for t in clip.things if key in (t.color, t.shape) for f in t.frames]


def nine(thing: Visitor) -> str:
    words = (ROWS[thing.row // 4], COLUMNS[thing.column // 4])
    return "-".join(word for word in words if word) or "center"


def about_things(clip: Clip, kind: str, words: list[str]) -> str:
    found = named(clip, words)
    if kind == "exist":
        return "yes" if found else "no"
    (thing,) = found
    if kind == "where":
        return nine(thing)
    return str(getattr(thing, "digit" if kind == "read" else kind))


def about_animals(clip: Clip, kind: str, words: list[str]) -> str:
    asked = [a for word in words for a in clip.animals if a.kind == word]
    if kind == "animal_color":
        return asked[0].color
    if kind == "when":
        return FRAMES[asked[0].frame]
    if kind == "order":
        assert len(asked) == 2
        return min(asked, key=lambda animal: animal.frame).kind
    (frame,) = [FRAMES.index(word) for word in words if word in FRAMES]
    (animal,) = [a for a in clip.animals if a.frame == frame]
    return animal.kind


def about_all(clip: Clip, kind: str, words: list[str]) -> str:
    if kind in {"common_color", "common_shape"}:
        attribute = kind.removeprefix("common_")
        counts: Counter[str] = Counter()
        for thing in clip.things:
            counts[getattr(thing, attribute)] += len(thing.frames)
        (first, most), (_, next_most) = counts.most_common(2)
        assert most > next_most
        return first
    if kind == "more":
        first, second = classes_in(words)
        sizes = len(shown(clip, first)), len(shown(clip, second))
        assert sizes[0] != sizes[1]
        return first if sizes[0] > sizes[1] else second
    if kind == "half":
        frames = [frame for name in classes_in(words) for frame in shown(clip, name)]
        late = sum(frame > 3 for frame in frames)
        assert 2 * late != len(frames)
        return "late" if 2 * late > len(frames) else "early"
    if kind == "empty":
        (frame,) = set(range(8)) - {f for thing in clip.things for f in thing.frames}
        return FRAMES[frame]
    return clip.place


def read(clip: Clip, kind: str, text: str) -> str:
    """Answer a question the slow way."""
    words = text.split()
    if kind in {"exist", "color", "shape", "read", "where"}:
        return about_things(clip, kind, words)
    if any(word in ANIMALS for word in words) or kind == "animal_then":
        return about_animals(clip, kind, words)
    return about_all(clip, kind, words)
