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
from tokencover.evaluation.tasks import ClipFile, Example, Frames, Source, Task
from tokencover.extras import import_extra
from tokencover.pictures import FRAMES
from tokencover.prompting import Kind

MEDIA: Final[tuple[Kind, ...]] = ("image", "video")
SMALLEST_CROWD = 4
"""With fewer people, no answer can be wholly right in VQA's soft accuracy."""
DATASET_FILES: Final = ("dataset_dict.json", "dataset_info.json", "state.json")
"""What a data set has that Hugging Face's `datasets` saved with ``save_to_disk``."""

Row = dict[str, Any]


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a data set that `datasets` saved."""
    return any((folder / name).is_file() for name in DATASET_FILES)


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
        rows = _read_dataset(path, split)
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
        raise InputError(f"{where} has no examples: write one JSON object a line.")
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
    group, shows = str(found[0].get("group", "all")), frozenset(_find_media(found))
    examples = functools.partial(_make_examples, name, folder or Path(), found, names)
    kept = "" if source is None else str(source.resolve())
    return Task(name, group, examples, SCORES[metric], _find_version(found), shows, source=kept)


def _name_row(row: Mapping[str, Any], number: int) -> str:
    """What errors call a row."""
    return str(row.get(LINE, f"row {number}")) if isinstance(row, Mapping) else f"row {number}"


LINE: Final = "__line__"
"""Where a row of a file keeps which line it is, for errors."""


# ---- reading files ------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # with or without the mark of Windows' editors
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}.") from error


def _read_json(path: Path) -> list[Row]:
    """Objects of a JSON list, or one a line."""
    text = _read_text(path)
    if text.lstrip().startswith("["):
        rows = _read_list(path, text)
        if rows is not None:
            return rows
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
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(text), delimiter=separator, strict=True)
    rows = []
    try:
        for row in reader:
            if None in row:
                raise InputError(
                    f"{path}, line {reader.line_num} has more cells than the first line names: put "
                    "texts with commas in double quotes."
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


def _read_dataset(folder: Path, split: str) -> list[Row]:
    library = import_extra(
        "datasets",
        f"reading the data set {folder}",
        "tokencover[datasets]",
        "save it as JSON lines",
    )
    found: Any = library.load_from_disk(str(folder))
    if not isinstance(found, library.Dataset):
        if split not in found:
            raise InputError(f"{folder} has no split {split!r}; it has {', '.join(found)}.")
        found = found[split]
    shown = [name for name in MEDIA if name in found.column_names]
    if not shown:
        raise InputError(
            f"{folder} has neither image nor video among its columns "
            f"{', '.join(found.column_names)}: rename one."
        )
    # Without the pictures: they are unpacked one at a time, when they are asked about.
    texts = {name: list(found[name]) for name in found.column_names if name not in shown}
    rows = []
    for number in range(len(found)):
        cells = {name: column[number] for name, column in texts.items()}
        media = {name: functools.partial(_take_cell, found, number, name) for name in shown}
        marks = {"__fingerprint__": str(found._fingerprint), LINE: f"row {number}"}
        rows.append({**cells, **media, **marks})
    return rows


def _take_cell(dataset: Any, number: int, column: str) -> Image.Image:
    found = dataset[number][column]
    if not isinstance(found, Image.Image):
        raise InputError(f"row {number} of the data set has no picture in {column!r}: {found!r}.")
    return found


# ---- checking rows ------------------------------------------------------------------------


def _check_row(row: Any, where: str) -> Row:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is no row with a question: {str(row)[:60]!r}.")
    found = {key: value for key, value in row.items() if key != LINE}
    if "answers" not in found and "answer" in found:
        found["answers"] = found.pop("answer")
    if missing := {"question", "answers"} - set(found):
        raise InputError(f"{where} lacks {', '.join(sorted(missing))}.")
    if not str(found["question"]).strip():
        raise InputError(f"{where} has an empty question: say what to ask.")
    answers = found["answers"] if isinstance(found["answers"], list | tuple) else [found["answers"]]
    if not answers:
        raise InputError(f"{where} has no answer: give at least one.")
    return {**found, "answers": list(map(str, answers)), **_check_media(found, where)}


def _check_media(row: Row, where: str) -> Row:
    """What a row shows: its pictures, or the frames of its clip, or the file of its clip."""
    given = [medium for medium in MEDIA if medium in row]
    if len(given) != 1:
        has = "both image and video" if given else "neither image nor video"
        raise InputError(f"{where} has {has}: give one of them.")
    (medium,) = given
    shown = row[medium]
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
