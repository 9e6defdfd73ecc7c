"""``tokencover methods`` and ``tokencover models``: lists, and details of one entry."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tokencover.bundled_models import MODELS, get_entry, validate_installed
from tokencover.catalog import (
    FamilyEntry,
    MethodEntry,
    read_families,
    read_methods,
    read_refused,
)
from tokencover.cli.options import AsJson, option
from tokencover.cli.values import print_json
from tokencover.errors import InputError
from tokencover.registry import suggest
from tokencover.tables import TextTable, print_facts, print_table

METHODS_HEADER: Final = ("name", "objective", "prunes", "families")
METHODS_NOTES: Final = (
    "families: how many support it; * some need the setting positions=original.",
    "`tokencover methods NAME` shows settings and families of one method,",
    "`tokencover methods --model MODEL` lists the methods that a model supports.",
)
NEEDED: Final = {
    "vision attention": "a family whose vision encoder is readable (`tokencover models`)",
    "vision merging": "a family whose vision encoder can merge tokens (`tokencover models`)",
    "class token": "a vision encoder with a class token",
    "tiles": "images as a base view and tiles",
}
"""Requirements on a family; other needs are text already."""
REASON_WIDTH: Final = 56
"""Characters of a reason that fit in 80 columns next to the longest model type."""
MODELS_NOTES: Final = (
    "vision encoder: whether methods can read its attention, and merge tokens in it.",
    "`tokencover models NAME` shows one family; `tokencover methods --model NAME`",
    "lists its methods.",
)

MethodName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Show this method in detail.")
]
OfModel = Annotated[
    str | None,
    option(
        "--model MODEL",
        "List methods for this bundled model, local path, Hub ID, family or model type.",
    ),
]
FamilyName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="Show one bundled model, local path, Hub ID, family or model type."
    ),
]


def list_methods(name: MethodName = None, model: OfModel = None, as_json: AsJson = False) -> None:
    """List pruning methods and the model families they support."""
    entries = read_methods() if name is None else [_get_method_entry(name)]
    family = None if model is None else resolve_family(model)
    if family is not None:
        absent = [each for each in entries if family.name not in each.families]
        entries = [each for each in entries if family.name in each.families]
        if name is not None and absent:
            needs = " and ".join(NEEDED[each] for each in absent[0].needs if each in NEEDED)
            reason = f" It needs {needs}." if needs else ""
            raise InputError(f"{name} does not run on {family.name}.{reason}")
    if as_json:
        print_json([asdict(each) for each in entries])
    elif name is not None:
        print_facts(_describe_method(entries[0], family, len(read_families())))
    elif family is not None:
        _print_methods_of_family(entries, family, [each.name for each in absent])
    else:
        total = len(read_families())
        rows = []
        for each in entries:
            count = "all" if len(each.families) == total else str(len(each.families))
            starred = count + "*" * bool(each.original_only)
            rows.append((each.name, each.objective, each.pruning_point, starred))
        print_table(TextTable(METHODS_HEADER, rows, words=len(METHODS_HEADER), notes=METHODS_NOTES))


def list_models(name: FamilyName = None, as_json: AsJson = False) -> None:
    """List model families that can be pruned, then model types that cannot and why."""
    if name is not None:
        family = resolve_family(name)
        print_json(asdict(family)) if as_json else print_facts(_describe_family(family))
        return
    if as_json:
        print_json(
            {
                "supported": [asdict(entry) for entry in read_families()],
                "refused": [asdict(entry) for entry in read_refused()],
            }
        )
        return
    supported = [
        (entry.name, ", ".join(entry.model_types), entry.in_tower) for entry in read_families()
    ]
    header = ("family", "model types", "vision encoder")
    is_each_tested = not any(entry.variants for entry in read_families())
    tested = ("Each model type is tested by value.",) if is_each_tested else ()
    print_table(TextTable(header, supported, words=len(header), notes=(*MODELS_NOTES, *tested)))
    print()
    shorten = partial(
        textwrap.shorten, width=REASON_WIDTH, placeholder=" ...", break_on_hyphens=False
    )
    refused = [(entry.model_type, shorten(entry.reason)) for entry in read_refused()]
    print_table(TextTable(("refused", "why"), refused, words=2))


def resolve_family(name: str) -> FamilyEntry:
    """Return the family of a bundled model, local path, Hub ID, family name or model type.

    Raises `InputError` if there is no such model or family, or it cannot be pruned.
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
                f"there is no such model, family or model type: {name!r}{near}. Pass a bundled "
                "model, local path, Hub ID, or a name from `tokencover models`."
            )
        model_type = _read_model_type(name, by_type)
    if model_type in by_type:
        return by_type[model_type]
    reason = refused[model_type].reason if model_type in refused else "its family is not known"
    raise InputError(f"models of type {model_type!r} cannot be pruned: {reason}.")


def _read_model_type(name: str, by_type: dict[str, Any]) -> str:
    """Read the model type of a checkpoint; of an Omni model that of the part that reads text."""
    from tokencover.loading import load_config

    config = load_config(name)
    inner = getattr(config, "thinker_config", None)
    kinds = [str(each.model_type) for each in (config, inner) if each is not None]
    return next((kind for kind in kinds if kind in by_type), kinds[0])


def _get_method_entry(name: str) -> MethodEntry:
    known = {each.name: each for each in read_methods()}
    if name not in known:
        raise InputError(
            f"there is no method {name!r}{suggest(name, known)}: `tokencover methods` lists all."
        )
    return known[name]


def _print_methods_of_family(
    entries: Sequence[MethodEntry], family: FamilyEntry, absent: Sequence[str]
) -> None:
    rows = [
        (each.name + "*" * (family.name in each.original_only), each.objective, each.pruning_point)
        for each in entries
    ]
    notes = [f"{len(rows)} methods run on {family.name}."]
    if any(family.name in each.original_only for each in entries):
        notes.append("* needs the setting positions=original")
    if absent:
        notes.append(f"not supported: {', '.join(absent)}")
    print_table(TextTable(METHODS_HEADER[:-1], rows, words=len(METHODS_HEADER), notes=notes))


def _describe_method(
    entry: MethodEntry, family: FamilyEntry | None, total: int
) -> list[tuple[str, str]]:
    runs_on = entry.families if family is None else (family.name,)
    starred = set(entry.original_only) & set(runs_on)
    listed = ", ".join(name + "*" * (name in starred) for name in runs_on)
    if len(entry.families) == total and not starred and family is None:
        listed = "all"
    published = ", ".join(filter(None, [str(entry.year or ""), entry.paper]))
    return [
        ("name", f"{entry.name} ({entry.title}{f', {published}' if published else ''})"),
        ("prunes", entry.pruning_point),
        ("objective", entry.objective),
        ("signal", entry.signal),
        ("needs", "; ".join(NEEDED.get(each, each) for each in entry.needs)),
        ("settings", ", ".join(entry.settings)),
        ("differs", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", entry.departs)),
        ("families", listed),
        ("", "* needs the setting positions=original" if starred else ""),
        ("class", f"{entry.module}.{entry.class_name}"),
    ]


def _describe_family(family: FamilyEntry) -> list[tuple[str, str]]:
    supported = [each.name for each in read_methods() if family.name in each.families]
    return [
        ("family", family.name),
        ("model types", ", ".join(family.model_types)),
        ("vision encoder", family.in_tower),
        ("tiles", "yes" if family.tiles else "no"),
        ("tested", family.tested),
        ("methods", ", ".join(supported)),
    ]
