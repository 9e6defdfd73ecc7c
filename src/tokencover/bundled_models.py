"""Test models of other packages, announced by entry points of the group ``tokencover.models``.

The package ``tokencover-models`` has three. This module imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tokencover.errors import InputError, MissingPackageError, get_install_command
from tokencover.registry import Registry

if TYPE_CHECKING:
    from tokencover.evaluation.tasks import Task
    from tokencover.prompting import Kind, Medium

KNOWN_NAMES: Final = ("pebble", "pebble-clips", "boulder")
"""Models of ``tokencover-models``, for errors where it is not installed."""


@dataclass(frozen=True)
class DrawnScene:
    """A drawn image or video, and the reference answer of each of its questions."""

    medium: Medium
    answers: dict[str, str]


@dataclass(frozen=True)
class SceneSet:
    """Drawn scenes that test models are trained for.

    `name` is that of their tasks: "pebble". ``draw(number, demo)`` returns a scene of the test
    split with all its questions, or with a representative few. ``load_tasks(type, split, limit)``
    returns one task per question type, or the named one.
    """

    name: str
    kind: Literal["image", "video"]
    num_scenes: int
    draw: Callable[[int, bool], DrawnScene]
    load_tasks: Callable[[str | None, str, int | None], list[Task]]


@dataclass(frozen=True)
class ModelEntry:
    """A model that `tokencover.load` knows by name.

    ``load_processor(folder)`` returns the processor alone, of a model retrained in the folder if
    there is one. `folder` is a checkpoint that ``from_pretrained`` reads; a model without one takes
    fewer options. `twig` is the folder of its twig (`tokencover.twig`), `lmms_tasks` one of task
    files for lmms-eval.
    """

    name: str
    model_type: str
    load: Callable[[], tuple[Any, Any]] = field(repr=False)
    load_processor: Callable[[Path | None], Any] = field(repr=False)
    scenes: SceneSet
    folder: Path | None = None
    twig: Path | None = None
    lmms_tasks: Path | None = None


def _check_entry(entry: object) -> str:
    if not isinstance(entry, ModelEntry):
        raise InputError(f"a model is announced as a ModelEntry, got {entry!r}.")
    return entry.name


MODELS: Final[Registry[ModelEntry]] = Registry(
    "test model",
    "tokencover.models",
    _check_entry,
    order=lambda entry: (entry.folder is None, entry.name),  # those with all options first
)


def get_entry(name: str) -> ModelEntry | None:
    """Return the test model of a name, None if there is none."""
    return MODELS[name] if name in MODELS else None  # noqa: SIM401 (a registry has no get)


def validate_installed(name: str) -> None:
    """Raise an error if a name belongs to a model of a package that is not installed."""
    if name in KNOWN_NAMES and name not in MODELS:
        raise MissingPackageError(
            f"{name!r} is part of the package tokencover-models, which is not installed. "
            f"Run: {get_install_command('tokencover-models')}"
        )


def list_scene_sets() -> dict[str, SceneSet]:
    """Return the scene sets of all test models by name."""
    return {entry.scenes.name: entry.scenes for entry in MODELS}


def get_scene_set(kind: Kind) -> SceneSet:
    """Return scenes of images or of videos."""
    for scenes in list_scene_sets().values():
        if scenes.kind == kind:
            return scenes
    raise MissingPackageError(
        "Drawn scenes are part of the package tokencover-models, which is not installed. "
        f"Run: {get_install_command('tokencover-models')}, or use your own image and question."
    )


def get_scenes_for(kinds: Sequence[Kind] | frozenset[Kind]) -> SceneSet:
    """Return scenes that a processor takes: images if it takes both."""
    return get_scene_set("image" if "image" in kinds else "video")


def get_default_tasks(model: str) -> str:
    """Return the name of the tasks that a test model is trained for, pebble's for other models."""
    entry = get_entry(model)
    return entry.scenes.name if entry is not None else get_scene_set("image").name
