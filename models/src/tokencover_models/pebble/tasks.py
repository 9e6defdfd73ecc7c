"""Evaluation tasks: questions about pebble's images, and about its videos."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tokencover.errors import InputError
from tokencover.evaluation.scoring import score_exact
from tokencover.evaluation.tasks import Example, Task
from tokencover.prompting import Kind
from tokencover_models.pebble.data import (
    CLIP_QUESTIONS,
    SCENE_QUESTIONS,
    list_seeds,
    make_clip_examples,
    make_examples,
)


@dataclass(frozen=True)
class Benchmark:
    """Questions of several kinds about scenes; each kind is a task.

    Attributes
    ----------
    name : str
        What the command line calls it.
    unit : str
        What its scenes are called, in the version of a task.
    medium : "image" or "video"
        What a model is shown.
    groups : mapping
        The group of each kind of question.
    examples : callable
        Goes through a split, all kinds of questions about one scene after the other, each with its
        kind.
    """

    name: str
    unit: str
    medium: Kind
    groups: Mapping[str, str]
    examples: Callable[[str, int | None], Iterator[tuple[str, Example]]]

    def make_tasks(self, kind: str | None, split: str, scenes: int | None) -> list[Task]:
        """One task; or, if `kind` is None, one for each kind that any of the scenes allows."""
        if kind is not None and kind not in self.groups:
            raise InputError(
                f"{self.name} asks no questions of kind {kind!r}; it asks {', '.join(self.groups)}."
            )
        wanted = [each for each in self.groups if kind in (None, each)]
        allowed = self._list_allowed(wanted, split, scenes)
        if not allowed:
            raise InputError(
                f"none of the first {scenes} {self.unit} allows a question of kind {kind!r}: take "
                "more of them."
            )
        return [self._make_task(each, split, scenes) for each in wanted if each in allowed]

    def _list_allowed(self, wanted: Sequence[str], split: str, scenes: int | None) -> set[str]:
        """Which kinds are asked about some scene; it goes no further than it must."""
        found: set[str] = set()
        for kind, _ in self.examples(split, scenes):
            found.add(kind)
            if found.issuperset(wanted):
                break
        return found.intersection(wanted)

    def _make_task(self, kind: str, split: str, scenes: int | None) -> Task:
        def examples() -> Iterator[Example]:
            return (each for own, each in _draw_examples(self.name, split, scenes) if own == kind)

        version = f"{split}, {len(list_seeds(split, scenes))} {self.unit}"
        name, shows = f"{self.name}/{kind}", frozenset({self.medium})
        return Task(name, self.groups[kind], examples, score_exact, version, shows, source=name)


def _show_pictures(split: str, scenes: int | None) -> Iterator[tuple[str, Example]]:
    for each in make_examples(split, scenes):
        name = f"{each.scene_id}"
        yield each.kind, Example(name, (each.picture,), each.question, (each.answer,), name)


def _show_clips(split: str, clips: int | None) -> Iterator[tuple[str, Example]]:
    for each in make_clip_examples(split, clips):
        name = f"{each.scene_id}"
        # A cluster of its own: a picture of the same number is another scene.
        cluster = f"clip {name}"
        shown = (each.frames,)
        yield each.kind, Example(name, (), each.question, (each.answer,), cluster, shown)


BENCHMARKS: Final = {
    each.name: each
    for each in (
        Benchmark("pebble", "scenes", "image", SCENE_QUESTIONS.families, _show_pictures),
        Benchmark("pebble-clips", "clips", "video", CLIP_QUESTIONS.families, _show_clips),
    )
}


@lru_cache(maxsize=len(BENCHMARKS))
def _draw_examples(name: str, split: str, scenes: int | None) -> tuple[tuple[str, Example], ...]:
    """All kinds of questions at once: which one is asked depends on those asked before it."""
    return tuple(BENCHMARKS[name].examples(split, scenes))
