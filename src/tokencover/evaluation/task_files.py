"""Tasks by name: kinds of questions that come with tokencover, or a file of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.evaluation.answer_scores import SCORES
from tokencover.evaluation.bundled_tasks import BENCHMARKS
from tokencover.evaluation.tasks import Example, Task
from tokencover.prompting import Kind

MEDIA: Final[tuple[Kind, ...]] = ("image", "video")
SMALLEST_CROWD = 4
"""With fewer people, no answer can be wholly right in VQA's soft accuracy."""


def find_tasks(
    names: Sequence[str], *, split: str = "test", limit: int | None = None
) -> list[Task]:
    """Tasks by name.

    Parameters
    ----------
    names : sequence of str
        "pebble" for all of pebble's kinds of questions, "pebble/color" for one, "pebble-clips" and
        "pebble-clips/when" for those about clips, or the path of a file with one JSON object a
        line: ``{"image": "cat.png", "question": "what is this ?", "answers": ["cat"]}``. Pictures
        lie relative to the file; "image" may be a list, and "video" in its place is the list of a
        clip's frames; "id", "cluster", "group" and "score" ("exact", "contains" or "vqa") may be
        given too.
    split : str
        Of pebble: "test" to report, "validation" to choose settings.
    limit : int, optional
        How many scenes or clips, or lines of a file, from the first; by default all. A few clips
        may not allow all kinds of questions: tasks without any are left out.
    """
    found: list[Task] = []
    for name in names:
        benchmark, slash, kind = name.partition("/")
        if benchmark in BENCHMARKS:
            found += BENCHMARKS[benchmark].make_tasks(kind if slash else None, split, limit)
        else:
            found.append(_read_task(Path(name), limit))
    repeated = sorted({task.name for task in found if sum(t.name == task.name for t in found) > 1})
    if repeated:
        raise InputError(f"tasks must have different names; given twice: {', '.join(repeated)}.")
    return found


def _read_task(path: Path, limit: int | None) -> Task:
    if not path.is_file():
        raise InputError(
            f"there is no task {str(path)!r}: give {', '.join(map(repr, BENCHMARKS))}, "
            "one of their kinds like 'pebble/color', or the path of a file with one JSON object a "
            "line."
        )
    if limit is not None and limit < 1:
        raise InputError(f"at least 1 example must be asked, got a limit of {limit}.")
    rows = _read_rows(path)[:limit]
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
    examples = partial(_make_examples, path, rows, names)
    group, shows = str(rows[0].get("group", "all")), frozenset(_find_media(rows))
    return Task(path.stem, group, examples, SCORES[metric], version, shows)


def _find_media(rows: list[dict[str, Any]]) -> Iterator[Kind]:
    """What the rows show."""
    for medium in MEDIA:
        if any(row.get(medium) for row in rows):
            yield medium


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}.") from error
    return [_read_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read_row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {number} is not a JSON object: {error}.") from error
    if not isinstance(row, dict):
        raise InputError(f"{path}, line {number} is not a JSON object: {line[:60]!r}.")
    if missing := {"question", "answers"} - set(row):
        raise InputError(f"{path}, line {number} lacks {', '.join(sorted(missing))}.")
    answers = row["answers"] if isinstance(row["answers"], list) else [row["answers"]]
    if not answers:
        raise InputError(f"{path}, line {number} has no answer: give at least one.")
    shown = _read_media(row, f"{path}, line {number}")
    return {**row, "answers": list(map(str, answers)), **shown}


def _read_media(row: dict[str, Any], where: str) -> dict[str, list[str]]:
    """The paths that a row shows: its pictures, or the frames of its clip."""
    given = [medium for medium in MEDIA if medium in row]
    if len(given) != 1:
        has = "both image and video" if given else "neither image nor video"
        raise InputError(f"{where} has {has}: give one of them.")
    (medium,) = given
    paths = row[medium]
    if medium == "video":
        _check_frames(paths, where)
    elif not isinstance(paths, list):
        paths = [paths]
    if not all(isinstance(path, str) for path in paths):
        what = "an image" if medium == "image" else "a frame"
        raise InputError(f"{where}: {what} is a path, got {row[medium]!r}.")
    return {medium: paths}


def _check_frames(frames: Any, where: str) -> None:
    if not isinstance(frames, list):
        raise InputError(
            f"{where}: a video is the list of its frames, got {frames!r}. Video files are not "
            "decoded: extract frames, for example with `ffmpeg -i cat.mp4 -vf fps=1 cat-%02d.png`, "
            'and give ["cat-01.png", "cat-02.png"].'
        )
    if not frames:
        raise InputError(f"{where}: a video needs at least one frame, got none.")


def _make_examples(path: Path, rows: list[dict[str, Any]], names: list[str]) -> Iterator[Example]:
    for name, row in zip(names, rows, strict=True):
        pictures, frames = (
            tuple(path.parent / each for each in row.get(medium, ())) for medium in MEDIA
        )
        # A name of its own: two files number their examples alike, though these are not related.
        cluster = str(row.get("cluster", f"{path.stem}/{name}"))
        yield Example(
            name,
            pictures,
            str(row["question"]),
            tuple(row["answers"]),
            cluster,
            (frames,) if frames else (),
        )
