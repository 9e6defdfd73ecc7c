"""``tokencover methods``: the pruning methods, one of them in detail, or those of a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tokencover.cli.options import JsonInstead, print_json, take
from tokencover.errors import InputError
from tokencover.tables import TextTable, print_facts, print_table

if TYPE_CHECKING:
    from tokencover.catalog import FamilyEntry, MethodEntry

HEADER: Final = ("name", "objective", "prunes", "families")
NOTES: Final = (
    "families: how many run the method; * some need the setting positions=original.",
    "`tokencover methods NAME` shows settings and families of one method,",
    "`tokencover methods --model MODEL` lists the methods that run on a model.",
)
NEEDED: Final = {
    "vision attention": "a family whose vision encoder is readable (`tokencover models`)",
    "vision merging": "a family whose vision encoder can merge tokens (`tokencover models`)",
    "class token": "a vision encoder with a class token",
    "tiles": "images as a base view and tiles",
}
"""What a family must have, in words; other needs are in words already."""

MethodName = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Show this method in detail.")
]
OfModel = Annotated[
    str | None,
    take(
        "--model",
        "MODEL",
        "List what runs there: pebble, a folder, a hub name, a family or a model type.",
    ),
]


def list_methods(
    name: MethodName = None, model: OfModel = None, as_json: JsonInstead = False
) -> None:
    """List pruning methods, show one of them, or list those that a model supports."""
    from tokencover.catalog import read_families, read_methods
    from tokencover.cli.model_family import resolve_family

    entries = read_methods() if name is None else [_get_method_entry(name)]
    family = None if model is None else resolve_family(model)
    if family is not None:
        absent = [each for each in entries if family.name not in each.families]
        entries = [each for each in entries if family.name in each.families]
        if name is not None and absent:
            raise InputError(f"{name} does not run on {family.name}.{_explain_needs(absent[0])}")
    if as_json:
        print_json([asdict(each) for each in entries])
    elif name is not None:
        print_facts(_describe_method(entries[0], family, len(read_families())))
    elif family is not None:
        _print_methods_of_family(entries, family, [each.name for each in absent])
    else:
        total = len(read_families())
        rows = [
            (each.name, each.objective, each.pruning_point, _count_families(each, total))
            for each in entries
        ]
        print_table(TextTable(HEADER, rows, words=len(HEADER), notes=NOTES))


def _get_method_entry(name: str) -> MethodEntry:
    from tokencover.catalog import read_methods
    from tokencover.registry import suggest

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
    print_table(TextTable(HEADER[:-1], rows, words=len(HEADER), notes=notes))


def _count_families(entry: MethodEntry, total: int) -> str:
    count = len(entry.families)
    return ("all" if count == total else str(count)) + "*" * bool(entry.original_only)


def _describe_method(
    entry: MethodEntry, family: FamilyEntry | None, total: int
) -> list[tuple[str, str]]:
    """Names and values of what there is to know about a method."""
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


def _explain_needs(entry: MethodEntry) -> str:
    needs = [NEEDED[each] for each in entry.needs if each in NEEDED]
    return f" It needs {' and '.join(needs)}." if needs else ""
