"""Data sets that Hugging Face's `datasets` saved to disk, as rows of questions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from PIL import Image

from tokencover.errors import InputError, import_extra
from tokencover.prompting import Kind

DATASET_FILES: Final = ("dataset_dict.json", "dataset_info.json", "state.json")
"""What a data set has that was saved with ``save_to_disk``."""
MEDIA: Final[tuple[Kind, ...]] = ("image", "video")
PICTURES: Final = "PIL.Image.Image"
"""What a column of pictures is made of, in words of `datasets`."""
TEXT: Final = ("string", "large_string")
LINE: Final = "__line__"
"""Where a row keeps which line of a file it is, for errors."""

Row = dict[str, Any]


def is_dataset(folder: Path) -> bool:
    """Whether a folder is a data set that `datasets` saved."""
    return any((folder / name).is_file() for name in DATASET_FILES)


def read_dataset(folder: Path, split: str) -> list[Row]:
    """The rows of a data set; pictures are unpacked one at a time, when they are asked about.

    Parameters
    ----------
    folder : Path
        Where it was saved.
    split : str
        Which one, if there are several.
    """
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
    if not set(MEDIA) & set(found.column_names):
        raise InputError(
            f"{folder} has neither image nor video among its columns "
            f"{', '.join(found.column_names)}: rename one."
        )
    columns = {
        name: _read_media(found, name, folder) if name in MEDIA else list(found[name])
        for name in found.column_names
    }
    rows = []
    for number in range(len(found)):
        cells = {name: column[number] for name, column in columns.items()}
        marks = {"__fingerprint__": str(found._fingerprint), LINE: f"row {number}"}
        rows.append({**cells, **marks})
    return rows


def _read_media(dataset: Any, name: str, folder: Path) -> Sequence[Any]:
    """A cell for each row: a path, what unpacks a picture, or a list of these."""
    feature = dataset.features[name]
    several = _find_inner(feature)
    kind = getattr(feature if several is None else several, "dtype", None)
    if kind in TEXT:
        return list(dataset[name])
    if kind != PICTURES:
        raise InputError(
            f"{folder}: the column {name!r} holds {kind or feature}, which cannot be read: save it "
            "with pictures, or with the paths of files."
        )
    if several is None:
        return [partial(_take_picture, dataset, number, name) for number in range(len(dataset))]
    counts = [len(cell) for cell in dataset.with_format("arrow")[:][name]]
    return [
        [partial(_take_picture, dataset, number, name, place) for place in range(count)]
        for number, count in enumerate(counts)
    ]


def _find_inner(feature: Any) -> Any:
    """What a column of lists is made of; None for other columns."""
    if isinstance(feature, list):
        return feature[0]
    return getattr(feature, "feature", None)


def _take_picture(dataset: Any, number: int, column: str, place: int | None = None) -> Image.Image:
    found = dataset[number][column]
    if place is not None:
        found = found[place]
    if not isinstance(found, Image.Image):
        raise InputError(f"row {number} of the data set has no picture in {column!r}: {found!r}.")
    return found
