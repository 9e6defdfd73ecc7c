"""A second, slow reading of videos: answers worked out from the words of a question alone."""

from __future__ import annotations

from collections import Counter

from slow_scene_answers import SINGULAR, list_classes

from tokencover_models.pebble.data import Clip, Visitor
from tokencover_models.pebble.vocabulary import ANIMALS, COLOR_WORDS, DIGITS, FRAMES, SHAPES

ROWS, COLUMNS = ("top", "", "bottom"), ("left", "", "right")


def list_named(clip: Clip, words: list[str]) -> list[Visitor]:
    wanted = {word for word in words if word in (*COLOR_WORDS, *SHAPES, *DIGITS)}
    return [t for t in clip.things if wanted <= {t.color, t.shape, t.digit}]


def list_frames(clip: Clip, name: str) -> list[int]:
    """Frames that show something of a class, one entry for each thing and frame."""
    key = SINGULAR.get(name, name)
    return [f for t in clip.things if key in (t.color, t.shape) for f in t.frames]


def name_ninth(thing: Visitor) -> str:
    words = (ROWS[thing.row // 4], COLUMNS[thing.column // 4])
    return "-".join(word for word in words if word) or "center"


def answer_about_things(clip: Clip, kind: str, words: list[str]) -> str:
    found = list_named(clip, words)
    if kind == "exist":
        return "yes" if found else "no"
    (thing,) = found
    if kind == "where":
        return name_ninth(thing)
    return str(getattr(thing, "digit" if kind == "read" else kind))


def answer_about_animals(clip: Clip, kind: str, words: list[str]) -> str:
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


def answer_about_all(clip: Clip, kind: str, words: list[str]) -> str:
    if kind in {"common_color", "common_shape"}:
        attribute = kind.removeprefix("common_")
        counts: Counter[str] = Counter()
        for thing in clip.things:
            counts[getattr(thing, attribute)] += len(thing.frames)
        (first, most), (_, next_most) = counts.most_common(2)
        assert most > next_most
        return first
    if kind == "more":
        first, second = list_classes(words)
        sizes = len(list_frames(clip, first)), len(list_frames(clip, second))
        assert sizes[0] != sizes[1]
        return first if sizes[0] > sizes[1] else second
    if kind == "half":
        frames = [frame for name in list_classes(words) for frame in list_frames(clip, name)]
        late = sum(frame > 3 for frame in frames)
        assert 2 * late != len(frames)
        return "late" if 2 * late > len(frames) else "early"
    if kind == "empty":
        (frame,) = set(range(8)) - {f for thing in clip.things for f in thing.frames}
        return FRAMES[frame]
    return clip.place


def answer_slowly(clip: Clip, kind: str, text: str) -> str:
    """Answer a question the slow way."""
    words = text.split()
    if kind in {"exist", "color", "shape", "read", "where"}:
        return answer_about_things(clip, kind, words)
    if any(word in ANIMALS for word in words) or kind == "animal_then":
        return answer_about_animals(clip, kind, words)
    return answer_about_all(clip, kind, words)
