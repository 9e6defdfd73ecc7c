"""Questions of one's own: rows of a file, of a data set on disk, or of a Python program."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from PIL import Image

from tokencover.errors import InputError
from tokencover.evaluation.answer_scores import SCORES
from tokencover.evaluation.metrics import UNGROUPED
from tokencover.evaluation.saved_datasets import LINE, MEDIA, Row, read_dataset
from tokencover.evaluation.tasks import ClipFile, Example, Frames, Source, Task
from tokencover.images import FRAMES
from tokencover.prompting import Kind

SEPARATORS: Final = (",", ";", "\t")
"""Of cells in a table, the first one if nothing tells."""
SMALLEST_CROWD = 4
"""With fewer people, no answer can be wholly right in VQA's soft accuracy."""


def read_own_task(path: Path, limit: int | None, split: str) -> Task:
    """The task of a file, or of a data set on disk.

    Parameters
    ----------
    path : Path
        A file with a JSON object a line, with a JSON list, or CSV; or a folder of `datasets`.
    limit : int, optional
        How many rows, from the first.
    split : str
        Which one of a data set that has several.
    """
    if path.is_dir():
        rows = read_dataset(path, split)
    elif path.suffix.lower() in (".csv", ".tsv"):
        rows = _read_csv(path)
    else:
        rows = _read_json(path)
    return make_task(rows, path.stem, limit=limit, folder=path.parent, source=path)


def make_task(
    rows: Iterable[Mapping[str, Any]],
    name: str = "data",
    *,
    limit: int | None = None,
    folder: Path | None = None,
    source: Path | None = None,
) -> Task:
    """Make a task of rows like ``{"image": picture, "question": "...", "answers": ["..."]}``.

    Parameters
    ----------
    rows : iterable of mapping
        See `find_tasks`; pictures are `PIL.Image.Image` or paths.
    name : str
        What tables call it.
    limit : int, optional
        How many rows, from the first.
    folder : Path, optional
        What paths are relative to; by default the working directory.
    source : Path, optional
        Where the rows come from.
    """
    where = name if source is None else str(source)
    if limit is not None and limit < 1:
        raise InputError(f"at least 1 example must be asked, got a limit of {limit}.")
    found = [
        _check_row(row, f"{where}, {_name_row(row, number)}")
        for number, row in enumerate(itertools.islice(rows, limit), 1)
    ]
    if not found:
        raise InputError(
            f"{where} has no examples: write one JSON object a line, a JSON list of them, or CSV "
            "with a first line that names the columns."
        )
    metric = found[0].get("score", "exact")
    if metric not in SCORES:
        raise InputError(f"{where}: no score is called {metric!r}; there are {', '.join(SCORES)}.")
    if metric == "vqa" and min(len(row["answers"]) for row in found) < SMALLEST_CROWD:
        raise InputError(
            f"{where}: the score 'vqa' needs the answers of at least {SMALLEST_CROWD} people for "
            "each example; with fewer use 'exact'."
        )
    names = [str(row.get("id", number)) for number, row in enumerate(found)]
    if len(set(names)) < len(names):
        raise InputError(f"{where}: two examples have the same id; give each its own.")
    group, shows = str(found[0].get("group", UNGROUPED)), frozenset(_find_media(found))
    examples = functools.partial(_make_examples, name, folder or Path(), found, names)
    kept = "" if source is None else str(source.resolve())
    return Task(name, group, examples, SCORES[metric], _find_version(found), shows, source=kept)


def _name_row(row: Mapping[str, Any], number: int) -> str:
    """What errors call a row."""
    return str(row.get(LINE, f"row {number}")) if isinstance(row, Mapping) else f"row {number}"


# ---- reading files ------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # with or without the mark of Windows' editors
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}. Save it as UTF-8.") from error


def _read_json(path: Path) -> list[Row]:
    """Objects of a JSON list, or one a line."""
    text = _read_text(path)
    if text.lstrip().startswith("["):
        rows = _read_list(path, text)
        if rows is not None:
            return rows
    if text.lstrip().startswith("{") and (row := _read_object(text)) is not None:
        return [{**row, LINE: "row 1"}]
    lines = enumerate(text.splitlines(), 1)
    return [_read_line(path, number, line) for number, line in lines if line.strip()]


def _read_list(path: Path, text: str) -> list[Row] | None:
    """The rows of a JSON list, None if it holds something else."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("[{") or error.lineno > 1:
            raise InputError(f"{path} is no JSON list: {error}.") from error
        return None
    if not all(isinstance(row, dict) for row in found):
        return None
    return [{**row, LINE: f"row {number}"} for number, row in enumerate(found, 1)]


def _read_object(text: str) -> Row | None:
    """The one object of a file, over several lines; None if there is something else."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) and "\n" in text.strip() else None


def _read_line(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {number} is not a JSON object: {error}.") from error
    if not isinstance(row, dict):
        raise InputError(f"{path}, line {number} is not a JSON object: {line[:60]!r}.")
    return {**row, LINE: f"line {number}"}


def _read_csv(path: Path) -> list[Row]:
    """Rows of a table whose first line names the columns; a cell with a JSON list is a list."""
    text = _read_text(path)
    first = text.partition("\n")[0]
    # Spreadsheets write semicolons where a comma is the decimal point, and tabs.
    separator = max(SEPARATORS, key=first.count)
    reader = csv.DictReader(io.StringIO(text), delimiter=separator, strict=True)
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    rows = []
    try:
        for row in reader:
            if None in row:
                raise InputError(
                    f"{path}, line {reader.line_num} has more cells than the first line names: put "
                    f"texts with {separator!r} in double quotes."
                )
            cells = {key: _read_cell(value) for key, value in row.items() if value}
            rows.append({**cells, LINE: f"line {reader.line_num}"})
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} is no CSV: {error}.") from error
    return rows


def _read_cell(text: str) -> Any:
    if not text.startswith("["):
        return text
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return text
    return found if isinstance(found, list) else text


# ---- checking rows ------------------------------------------------------------------------


def _check_row(row: Any, where: str) -> Row:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is no row with a question: {str(row)[:60]!r}.")
    found = {key: value for key, value in row.items() if key != LINE}
    if "answers" not in found and "answer" in found:
        found["answers"] = found.pop("answer")
    if missing := {"question", "answers"} - set(found):
        raise InputError(f"{where} lacks {', '.join(sorted(missing))}{_name_columns(found)}.")
    question = found["question"]
    if question is None or not str(question).strip():
        raise InputError(f"{where} has an empty question: say what to ask.")
    if not isinstance(question, str | int | float):
        raise InputError(f"{where}: a question is text, got {question!r}.")
    answers = found["answers"] if isinstance(found["answers"], list | tuple) else [found["answers"]]
    if not answers or any(each is None or not str(each).strip() for each in answers):
        raise InputError(f"{where} has no answer, or an empty one: give at least one.")
    return {**found, "answers": list(map(str, answers)), **_check_media(found, where)}


def _name_columns(row: Row) -> str:
    """What a row has instead of what it lacks."""
    names = [str(key) for key in row if not str(key).startswith("__")]
    return f"; it has {', '.join(names)}" if names else ""


def _check_media(row: Row, where: str) -> Row:
    """What a row shows: its pictures, or the frames of its clip, or the file of its clip."""
    given = [medium for medium in MEDIA if medium in row]
    if len(given) != 1:
        has = "both image and video" if given else "neither image nor video"
        raise InputError(f"{where} has {has}: give one of them{_name_columns(row)}.")
    (medium,) = given
    shown = row[medium]
    for each in shown if isinstance(shown, list | tuple) else [shown]:
        if isinstance(each, str) and "://" in each:
            raise InputError(
                f"{where}: {each} is an address, and nothing is fetched: save it, and give the "
                "path of the file."
            )
    if medium == "video" and isinstance(shown, str | Path):
        return {medium: str(shown), "frames": _check_count(row.get("frames", FRAMES), where)}
    if not isinstance(shown, list | tuple):
        if medium == "video":
            raise InputError(
                f"{where}: a video is a file or the list of its frames, got {shown!r}."
            )
        shown = [shown]
    if medium == "video" and not shown:
        raise InputError(f"{where}: a video needs at least one frame, got none.")
    if not all(isinstance(each, str | Path | Image.Image) or callable(each) for each in shown):
        what = "an image" if medium == "image" else "a frame"
        raise InputError(f"{where}: {what} is a path, got {row[medium]!r}.")
    return {medium: [str(each) if isinstance(each, Path) else each for each in shown]}


def _check_count(frames: Any, where: str) -> int:
    if not str(frames).isdecimal() or int(frames) < 1:
        raise InputError(f"{where}: frames counts those of a clip, got {frames!r}.")
    return int(frames)


def _find_media(rows: Sequence[Row]) -> Iterator[Kind]:
    """What the rows show."""
    for medium in MEDIA:
        if any(row.get(medium) for row in rows):
            yield medium


def _find_version(rows: Sequence[Row]) -> str:
    """Another one for other rows; of pictures in memory their pixels count."""

    def describe(value: Any) -> str:
        if isinstance(value, Image.Image):
            return hashlib.sha256(value.tobytes()).hexdigest()
        return "" if callable(value) else str(value)

    text = json.dumps(rows, sort_keys=True, default=describe)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- examples -----------------------------------------------------------------------------


def _make_examples(
    name: str, folder: Path, rows: Sequence[Row], ids: Sequence[str]
) -> Iterator[Example]:
    for number, row in zip(ids, rows, strict=True):
        pictures = tuple(_find_source(each, folder) for each in row.get("image", ()))
        # A name of its own: two files number their examples alike, though these are not related.
        cluster = str(row.get("cluster", f"{name}/{number}"))
        clips = _find_clips(row, folder)
        answers = tuple(row["answers"])
        yield Example(number, pictures, str(row["question"]), answers, cluster, clips)


def _find_clips(row: Row, folder: Path) -> tuple[Frames, ...]:
    video = row.get("video")
    if not video:
        return ()
    if isinstance(video, str):
        return (ClipFile(folder / video, row["frames"]),)
    return (tuple(_find_source(each, folder) for each in video),)


def _find_source(given: str | Image.Image | Callable[[], Image.Image], folder: Path) -> Source:
    return folder / given if isinstance(given, str) else given
