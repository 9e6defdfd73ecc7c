"""Tasks by name: kinds of questions that come with tokencover, or data of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokencover.bundled_models import list_scene_sets, validate_installed
from tokencover.errors import InputError
from tokencover.evaluation.own_data import read_own_task
from tokencover.evaluation.saved_datasets import is_dataset
from tokencover.evaluation.tasks import Task


def find_tasks(
    names: Sequence[str], *, split: str = "test", limit: int | None = None
) -> list[Task]:
    """Tasks by name.

    Parameters
    ----------
    names : sequence of str
        "pebble" for all of pebble's kinds of questions, "pebble/color" for one, "pebble-clips" and
        "pebble-clips/when" for those about clips, or data of one's own: the path of a file with
        one JSON object a line, ``{"image": "cat.png", "question": "what is this ?", "answers":
        ["cat"]}``, with a JSON list of them, of a CSV table, or of a folder that `datasets` saved.
        Pictures lie relative to the file; "image" may be a list, and "video" in its place is a
        clip, a file or the list of its frames; "id", "cluster", "group" and "score" ("exact",
        "contains" or "vqa") may be given too.
    split : str
        Of pebble, or of a data set: "test" to report, "validation" to choose settings.
    limit : int, optional
        How many scenes or clips, or lines of a file, from the first; by default all. A few clips
        may not allow all kinds of questions: tasks without any are left out.
    """
    found: list[Task] = []
    scene_sets = list_scene_sets()
    for name in names:
        own, slash, kind = name.partition("/")
        if own in scene_sets:
            found += scene_sets[own].load_tasks(kind if slash else None, split, limit)
        else:
            found.append(_read_task(Path(name), limit, split))
    repeated = sorted({task.name for task in found if sum(t.name == task.name for t in found) > 1})
    if repeated:
        raise InputError(f"tasks must have different names; given twice: {', '.join(repeated)}.")
    return found


def _read_task(path: Path, limit: int | None, split: str) -> Task:
    if not path.is_file() and not is_dataset(path):
        validate_installed(path.parts[0] if path.parts else "")
        bundled = ", ".join(map(repr, list_scene_sets()))
        raise InputError(
            f"there is no task {str(path)!r}: give {bundled}, "
            "one of their kinds like 'pebble/color', the path of a file with one JSON object a "
            "line, or a data set that `datasets` saved to disk."
        )
    return read_own_task(path, limit, split)
