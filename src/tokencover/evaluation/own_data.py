"""Tasks by name, and tasks from your data: JSON, CSV, saved datasets, or rows in Python."""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from PIL import Image

from tokencover.bundled_models import list_scene_sets, validate_installed
from tokencover.errors import InputError, import_extra
from tokencover.evaluation.scoring import SCORES, UNGROUPED
from tokencover.evaluation.tasks import Example, Frames, Source, Task, VideoFile
from tokencover.images import FRAMES
from tokencover.prompting import Kind

SEPARATORS: Final = (",", ";", "\t")
"""Of CSV cells; the first one wins a tie."""
SMALLEST_CROWD: Final = 4
"""With fewer people, no answer reaches 1 in VQA's soft accuracy."""
DATASET_FILES: Final = ("dataset_dict.json", "dataset_info.json", "state.json")
"""Files of a dataset that was saved with ``save_to_disk``."""
MEDIA: Final[tuple[Kind, ...]] = ("image", "video")
IMAGE_DTYPE: Final = "PIL.Image.Image"
TEXT_DTYPES: Final = ("string", "large_string")
LINE: Final = "__line__"
"""Key of the line that a row comes from, for errors."""

Row = dict[str, Any]


def load_tasks(
    names: Sequence[str], *, split: str = "test", limit: int | None = None
) -> list[Task]:
    """Load tasks by name.

    Parameters
    ----------
    names : sequence of str
        "pebble" for all of pebble's question types, "pebble/color" for one, `pebble-clips` and
        `pebble-clips/when` for those about videos; or your data: the path of a file with one JSON
        object per line, ``{"image": "cat.png", "question": "what is this ?", "answers": ["cat"]}``,
        with a JSON list of them, of a CSV table, or of a folder that `datasets` saved. Image paths
        are relative to the file; "image" may be a list, and "video" in its place is a file or the
        list of its frames; "id", "cluster", "group" and "score" ("exact", "contains" or "vqa") are
        optional.
    split : str
        Of pebble, or of a dataset: "test" to report, "validation" to choose settings.
    limit : int, optional
        How many scenes or videos, or lines of a file, from the first; by default all. A few videos
        may not allow all question types: tasks without any are left out.
    """
    tasks: list[Task] = []
    scene_sets = list_scene_sets()
    for name in names:
        own, slash, kind = name.partition("/")
        if own in scene_sets:
            tasks += scene_sets[own].load_tasks(kind if slash else None, split, limit)
        else:
            tasks.append(_load_file(Path(name), limit, split))
    validate_different([task.name for task in tasks])
    return tasks


def validate_different(names: Sequence[str]) -> None:
    """Raise `InputError` if two tasks have the same name."""
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"tasks must have different names; given twice: {', '.join(repeated)}.")


def _load_file(path: Path, limit: int | None, split: str) -> Task:
    is_dataset = any((path / name).is_file() for name in DATASET_FILES)
    if not path.is_file() and not is_dataset:
        validate_installed(path.parts[0] if path.parts else "")
        bundled = ", ".join(map(repr, list_scene_sets()))
        raise InputError(
            f"there is no task {str(path)!r}: give {bundled}, "
            "one of their question types like 'pebble/color', the path of a file with one JSON "
            "object per line, or a dataset that `datasets` saved to disk."
        )
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
    """Build a task from rows like ``{"image": image, "question": "...", "answers": ["..."]}``.

    Parameters
    ----------
    rows : iterable of mapping
        See `load_tasks`; images are `PIL.Image.Image` or paths.
    name : str
        Its name in tables.
    limit : int, optional
        How many rows, from the first.
    folder : Path, optional
        The folder of relative paths; by default the working directory.
    source : Path, optional
        The file that the rows come from.
    """
    where = name if source is None else str(source)
    if limit is not None and limit < 1:
        raise InputError(f"the limit must be at least 1 example, got {limit}.")
    checked = [
        _check_row(row, f"{where}, {_name_row(row, number)}")
        for number, row in enumerate(itertools.islice(rows, limit), 1)
    ]
    if not checked:
        raise InputError(
            f"{where} has no examples: write one JSON object per line, a JSON list of them, or CSV "
            "with a first line that names the columns."
        )
    metric = checked[0].get("score", "exact")
    if metric not in SCORES:
        raise InputError(f"{where}: no score is called {metric!r}; there are {', '.join(SCORES)}.")
    if metric == "vqa" and min(len(row["answers"]) for row in checked) < SMALLEST_CROWD:
        raise InputError(
            f"{where}: the score 'vqa' needs the answers of at least {SMALLEST_CROWD} people for "
            "each example; with fewer use 'exact'."
        )
    ids = [str(row.get("id", number)) for number, row in enumerate(checked)]
    if len(set(ids)) < len(ids):
        raise InputError(f"{where}: two examples have the same id; ids must be unique.")
    group = str(checked[0].get("group", UNGROUPED))
    shows = frozenset(medium for medium in MEDIA if any(row.get(medium) for row in checked))
    examples = partial(_make_examples, name, folder or Path(), checked, ids)
    kept = "" if source is None else str(source.resolve())
    return Task(
        name, group, examples, SCORES[metric], _compute_version(checked), shows, source=kept
    )


def _name_row(row: Mapping[str, Any], number: int) -> str:
    """A row's name in errors."""
    return str(row.get(LINE, f"row {number}")) if isinstance(row, Mapping) else f"row {number}"


# ---- reading files ------------------------------------------------------------------------


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # with or without a byte order mark
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: {error}. Save it as UTF-8.") from error


def _read_json(path: Path) -> list[Row]:
    """Objects of a JSON list, one object, or one per line."""
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
    """The rows of a JSON list, None if it contains something else."""
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        if text.lstrip().startswith("[{") or error.lineno > 1:
            raise InputError(f"{path} is not a JSON list: {error}.") from error
        return None
    if not all(isinstance(row, dict) for row in rows):
        return None
    return [{**row, LINE: f"row {number}"} for number, row in enumerate(rows, 1)]


def _read_object(text: str) -> Row | None:
    """The one object of a file, over several lines; None if it contains something else."""
    try:
        row = json.loads(text)
    except json.JSONDecodeError:
        return None
    return row if isinstance(row, dict) and "\n" in text.strip() else None


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
            cells = {key: _parse_cell(value) for key, value in row.items() if value}
            rows.append({**cells, LINE: f"line {reader.line_num}"})
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num} is not CSV: {error}.") from error
    return rows


def _parse_cell(text: str) -> Any:
    if not text.startswith("["):
        return text
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, list) else text


# ---- datasets of Hugging Face ---------------------------------------------------------------


def _read_dataset(folder: Path, split: str) -> list[Row]:
    """The rows of a saved dataset; images are unpacked one at a time, when they are used."""
    library = import_extra(
        "datasets", f"reading the dataset {folder}", "tokencover[datasets]", "save it as JSON lines"
    )
    dataset: Any = library.load_from_disk(str(folder))
    if not isinstance(dataset, library.Dataset):
        if split not in dataset:
            raise InputError(f"{folder} has no split {split!r}; it has {', '.join(dataset)}.")
        dataset = dataset[split]
    if not set(MEDIA) & set(dataset.column_names):
        raise InputError(
            f"{folder} has neither image nor video among its columns "
            f"{', '.join(dataset.column_names)}: rename one."
        )
    columns = {
        name: _read_media(dataset, name, folder) if name in MEDIA else list(dataset[name])
        for name in dataset.column_names
    }
    rows = []
    for number in range(len(dataset)):
        cells = {name: column[number] for name, column in columns.items()}
        marks = {"__fingerprint__": str(dataset._fingerprint), LINE: f"row {number}"}
        rows.append({**cells, **marks})
    return rows


def _read_media(dataset: Any, name: str, folder: Path) -> Sequence[Any]:
    """A cell for each row: a path, a function that unpacks an image, or a list of these."""
    feature = dataset.features[name]
    inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
    kind = getattr(feature if inner is None else inner, "dtype", None)
    if kind in TEXT_DTYPES:
        return list(dataset[name])
    if kind != IMAGE_DTYPE:
        raise InputError(
            f"{folder}: the column {name!r} contains {kind or feature}, which cannot be read: save "
            "it with images, or with the paths of files."
        )
    if inner is None:
        return [partial(_unpack_image, dataset, number, name) for number in range(len(dataset))]
    counts = [len(cell) for cell in dataset.with_format("arrow")[:][name]]
    return [
        [partial(_unpack_image, dataset, number, name, index) for index in range(count)]
        for number, count in enumerate(counts)
    ]


def _unpack_image(dataset: Any, number: int, column: str, index: int | None = None) -> Image.Image:
    image = dataset[number][column]
    if index is not None:
        image = image[index]
    if not isinstance(image, Image.Image):
        raise InputError(f"row {number} of the dataset has no image in {column!r}: {image!r}.")
    return image


# ---- checking rows ------------------------------------------------------------------------


def _check_row(row: Any, where: str) -> Row:
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is not a row with a question: {str(row)[:60]!r}.")
    checked = {key: value for key, value in row.items() if key != LINE}
    if "answers" not in checked and "answer" in checked:
        checked["answers"] = checked.pop("answer")
    if missing := {"question", "answers"} - set(checked):
        raise InputError(f"{where} lacks {', '.join(sorted(missing))}{_name_columns(checked)}.")
    question, answers = checked["question"], checked["answers"]
    if question is None or not str(question).strip():
        raise InputError(f"{where} has an empty question.")
    if not isinstance(question, str | int | float):
        raise InputError(f"{where}: a question is text, got {question!r}.")
    answers = answers if isinstance(answers, list | tuple) else [answers]
    if not answers or any(answer is None or not str(answer).strip() for answer in answers):
        raise InputError(f"{where} has no answer, or an empty one: give at least one.")
    return {**checked, "answers": list(map(str, answers)), **_check_media(checked, where)}


def _name_columns(row: Row) -> str:
    """The columns of a row, for the error that one is missing."""
    names = [str(key) for key in row if not str(key).startswith("__")]
    return f"; it has {', '.join(names)}" if names else ""


def _check_media(row: Row, where: str) -> Row:
    """The images of a row, the frames of its video, or its video file."""
    given = [medium for medium in MEDIA if medium in row]
    if len(given) != 1:
        has = "both image and video" if given else "neither image nor video"
        raise InputError(f"{where} has {has}: give one of them{_name_columns(row)}.")
    (medium,) = given
    value = row[medium]
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, str) and "://" in part:
            raise InputError(
                f"{where}: {part} is a URL, and tokencover does not download images: save it, and "
                "give the path of the file."
            )
    if medium == "video" and isinstance(value, str | Path):
        return {medium: str(value), "frames": _check_count(row.get("frames", FRAMES), where)}
    if not isinstance(value, list | tuple):
        if medium == "video":
            raise InputError(
                f"{where}: a video is a file or the list of its frames, got {value!r}."
            )
        value = [value]
    if medium == "video" and not value:
        raise InputError(f"{where}: a video needs at least one frame, got none.")
    if not all(isinstance(part, str | Path | Image.Image) or callable(part) for part in value):
        what = "an image" if medium == "image" else "a frame"
        raise InputError(f"{where}: {what} is a path, got {row[medium]!r}.")
    return {medium: [str(part) if isinstance(part, Path) else part for part in value]}


def _check_count(frames: Any, where: str) -> int:
    if not str(frames).isdecimal() or int(frames) < 1:
        raise InputError(f"{where}: frames is the number of frames of a video, got {frames!r}.")
    return int(frames)


def _compute_version(rows: Sequence[Row]) -> str:
    """A digest of the rows; of images in memory it includes the pixels."""

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
        images = tuple(_resolve_source(each, folder) for each in row.get("image", ()))
        video, videos = row.get("video"), tuple[Frames, ...]()
        if video and isinstance(video, str):
            videos = (VideoFile(folder / video, row["frames"]),)
        elif video:
            videos = (tuple(_resolve_source(frame, folder) for frame in video),)
        # With the task's name: equal numbers in two files are not related.
        cluster = str(row.get("cluster", f"{name}/{number}"))
        answers = tuple(row["answers"])
        yield Example(number, images, str(row["question"]), answers, cluster, videos)


def _resolve_source(given: str | Image.Image | Callable[[], Image.Image], folder: Path) -> Source:
    return folder / given if isinstance(given, str) else given
