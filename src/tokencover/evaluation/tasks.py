"""Tasks by name: pebble's kinds of questions, or a file of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tokencover.errors import InputError
from tokencover.evaluation.scoring import SCORES, exact
from tokencover.evaluation.task import Example, Task
from tokencover.pebble.benchmark import Example as PebbleExample
from tokencover.pebble.benchmark import examples as pebble_examples
from tokencover.pebble.questions import FAMILIES, KINDS
from tokencover.pebble.splits import scene_seeds

PEBBLE = "pebble"
SMALLEST_CROWD = 4
"""With fewer people, no answer can be wholly right in VQA's soft accuracy."""


def find_tasks(
    names: Sequence[str], *, split: str = "test", limit: int | None = None
) -> list[Task]:
    """Tasks by name.

    Parameters
    ----------
    names : sequence of str
        "pebble" for all of pebble's kinds of questions, "pebble/color" for one, or the path of a
        file with one JSON object a line: ``{"image": "cat.png", "question": "what is this ?",
        "answers": ["cat"]}``. Pictures lie relative to the file; "image" may be a list; "id",
        "cluster", "group" and "score" ("exact", "contains" or "vqa") may be given too.
    split : str
        Of pebble: "test" to report, "validation" to choose settings.
    limit : int, optional
        How many scenes, or lines of a file, from the first; by default all.
    """
    found: list[Task] = []
    for name in names:
        if name == PEBBLE:
            found += [_pebble(kind, split, limit) for kind in KINDS]
        elif name.startswith(f"{PEBBLE}/"):
            found.append(_pebble(name.removeprefix(f"{PEBBLE}/"), split, limit))
        else:
            found.append(_file(Path(name), limit))
    repeated = sorted({task.name for task in found if sum(t.name == task.name for t in found) > 1})
    if repeated:
        raise InputError(f"tasks must have different names; given twice: {', '.join(repeated)}.")
    return found


def _pebble(kind: str, split: str, scenes: int | None) -> Task:
    if kind not in KINDS:
        raise InputError(f"pebble asks no questions of kind {kind!r}; it asks {', '.join(KINDS)}.")

    def examples() -> Iterator[Example]:
        for each in _benchmark(split, scenes):
            if each.kind == kind:
                name = f"{each.scene_id}"
                yield Example(name, (each.picture,), each.question, (each.answer,), name)

    version = f"{split}, {len(scene_seeds(split, scenes))} scenes"
    return Task(f"{PEBBLE}/{kind}", FAMILIES[kind], examples, exact, version)


@lru_cache(maxsize=1)
def _benchmark(split: str, scenes: int | None) -> tuple[PebbleExample, ...]:
    """All kinds of questions at once: which one is asked depends on those asked before it."""
    return tuple(pebble_examples(split, scenes))


def _file(path: Path, limit: int | None) -> Task:
    if not path.is_file():
        raise InputError(
            f"there is no task {str(path)!r}: give 'pebble', 'pebble/color', or the path of a file "
            "with one JSON object a line."
        )
    if limit is not None and limit < 1:
        raise InputError(f"at least 1 example must be asked, got a limit of {limit}.")
    rows = _rows(path)[:limit]
    if not rows:
        raise InputError(f"{path} has no examples: write one JSON object a line.")
    metric = rows[0].get("score", "exact")
    if metric not in SCORES:
        raise InputError(f"{path}: no score is called {metric!r}; there are {', '.join(SCORES)}.")
    if metric == "vqa" and min(len(row["answers"]) for row in rows) < SMALLEST_CROWD:
        raise InputError(
            f"{path}: the score 'vqa' needs the answers of at least {SMALLEST_CROWD} people for "
            "each example; with fewer use 'exact'."
        )
    names = [str(row.get("id", number)) for number, row in enumerate(rows)]
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two examples have the same id; give each its own.")
    version = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
    examples = partial(_examples, path, rows, names)
    return Task(path.stem, str(rows[0].get("group", "all")), examples, SCORES[metric], version)


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}.") from error
    return [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {number} is not a JSON object: {error}.") from error
    if not isinstance(row, dict):
        raise InputError(f"{path}, line {number} is not a JSON object: {line[:60]!r}.")
    if missing := {"image", "question", "answers"} - set(row):
        raise InputError(f"{path}, line {number} lacks {', '.join(sorted(missing))}.")
    answers = row["answers"] if isinstance(row["answers"], list) else [row["answers"]]
    images = row["image"] if isinstance(row["image"], list) else [row["image"]]
    if not answers:
        raise InputError(f"{path}, line {number} has no answer: give at least one.")
    if not all(isinstance(image, str) for image in images):
        raise InputError(f"{path}, line {number}: an image is a path, got {row['image']!r}.")
    return {**row, "answers": list(map(str, answers)), "image": images}


def _examples(path: Path, rows: list[dict[str, Any]], names: list[str]) -> Iterator[Example]:
    for name, row in zip(names, rows, strict=True):
        sources = tuple(path.parent / image for image in row["image"])
        # A name of its own: two files number their examples alike, though these are not related.
        cluster = str(row.get("cluster", f"{path.stem}/{name}"))
        yield Example(name, sources, str(row["question"]), tuple(row["answers"]), cluster)
