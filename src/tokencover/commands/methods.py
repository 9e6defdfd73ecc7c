"""``tokencover methods``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from tokencover.commands.options import JsonInstead, print_json
from tokencover.tables import TextTable, print_table

if TYPE_CHECKING:
    from tokencover.catalog import MethodEntry

HEADER: Final = ("name", "year", "objective", "place", "needs", "families")
NOTES: Final = (
    "* the Qwens and what is built like them have positions of several axes: there give",
    "  positions='original'",
    "encoder: it is known which tokens of the tower make which visual token, its attention is read",
    "tower: they become visual tokens one to one, and are merged inside it; tiles: there is a base",
    "  view and tiles of it",
)


def list_methods(as_json: JsonInstead = False) -> None:
    """List the pruning methods, and the models they run on."""
    from tokencover.catalog import read_families, read_methods

    if as_json:
        print_json([asdict(entry) for entry in read_methods()])
        return
    every = [family.name for family in read_families()]
    rows = [
        (
            entry.name,
            "" if entry.year is None else str(entry.year),
            entry.objective,
            entry.place,
            ", ".join(entry.needs),
            _name_families(entry, every),
        )
        for entry in read_methods()
    ]
    print_table(TextTable(HEADER, rows, words=len(HEADER), notes=NOTES))


def _name_families(entry: MethodEntry, every: Sequence[str]) -> str:
    """The families a method runs on; a star where positions cannot be numbered anew."""
    starred, runs_on = set(entry.original_only), set(entry.families)
    missing = [name for name in every if name not in runs_on]
    if len(missing) < len(runs_on):
        but = f" but {', '.join(missing)}" if missing else ""
        return f"all{'*' if starred else ''}{but}"
    return ", ".join(name + "*" * (name in starred) for name in entry.families)
