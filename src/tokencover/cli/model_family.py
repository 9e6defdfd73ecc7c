"""The model family that a name on the command line stands for.

Not a command itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tokencover.bundled_models import MODELS, get_entry, list_scene_sets, validate_installed
from tokencover.catalog import FamilyEntry, read_families, read_refused
from tokencover.errors import InputError
from tokencover.registry import suggest

OWN_BENCHMARKS: Final = "lmms:tokencover_pebble"
"""How lmms-eval's names for questions about our scenes begin."""


def resolve_family(name: str) -> FamilyEntry:
    """Return the family of a bundled model, a folder, a hub name, a family or a model type.

    Raises
    ------
    InputError
        If there is no such model or family, or its models cannot be pruned.
    """
    families, refused = read_families(), {each.model_type: each for each in read_refused()}
    by_name = {family.name.lower(): family for family in families}
    by_type = {kind: family for family in families for kind in family.model_types}
    validate_installed(name)
    entry = get_entry(name)
    model_type = name if entry is None else entry.model_type
    if model_type.lower() in by_name:
        return by_name[model_type.lower()]
    if model_type not in by_type and model_type not in refused:
        if not name.strip() or ("/" not in name and not Path(name).expanduser().exists()):
            near = suggest(name, [*(entry.name for entry in MODELS), *by_type, *refused])
            raise InputError(
                f"there is no model, family or model type {name!r}{near}. Give a bundled model, a "
                "folder, a hub name, or a name from `tokencover models`."
            )
        model_type = _read_model_type(name, by_type)
    if model_type in by_type:
        return by_type[model_type]
    reason = refused[model_type].reason if model_type in refused else "its family is not known"
    raise InputError(f"models of type {model_type!r} cannot be pruned: {reason}.")


def warn_about_images(model: str, tasks: Sequence[str] | None = None) -> None:
    """Warn if a bundled model is evaluated on images other than the scenes it was trained on.

    Parameters
    ----------
    model : str
        Its name.
    tasks : sequence of str, optional
        What it is evaluated on; by default an image of the user's.
    """
    is_foreign = tasks is None or any(
        each.partition("/")[0] not in list_scene_sets() and not each.startswith(OWN_BENCHMARKS)
        for each in tasks
    )
    if model in MODELS and is_foreign:
        print(
            f"tokencover: {model} was trained on scenes that tokencover draws, and its answers "
            "about other images are guesses: choose another --model for them",
            file=sys.stderr,
        )


def _read_model_type(name: str, by_type: dict[str, FamilyEntry]) -> str:
    """The model type of a folder or hub name; of an Omni model that of the part that reads text."""
    from tokencover.loading import load_config

    config = load_config(name)
    inner = getattr(config, "thinker_config", None)
    kinds = [str(each.model_type) for each in (config, inner) if each is not None]
    return next((kind for kind in kinds if kind in by_type), kinds[0])
