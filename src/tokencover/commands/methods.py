"""``tokencover methods``: what there is to choose from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tokencover.tables import TextTable, print_table

if TYPE_CHECKING:
    from tokencover.catalog import MethodEntry

HEADER: Final = ("name", "year", "objective", "place", "needs", "families")
NOTES: Final = (
    "* Qwen-VL and GLM-4V have positions of several axes: there give positions='original'",
    "encoder: the tower's tokens become visual tokens one to one, its attention is read",
    "tower: tokens are merged inside it; tiles: there are a base view and tiles of it",
)


def list_methods() -> None:
    """List the pruning methods, and the models they run on."""
    from tokencover.catalog import read_families, read_methods

    count = len(read_families())
    rows = [
        (
            entry.name,
            "" if entry.year is None else str(entry.year),
            entry.objective,
            entry.place,
            ", ".join(entry.needs),
            _name_families(entry, count),
        )
        for entry in read_methods()
    ]
    print_table(TextTable(HEADER, rows, words=len(HEADER), notes=NOTES))


def _name_families(entry: MethodEntry, count: int) -> str:
    """The families a method runs on; a star where positions cannot be numbered anew."""
    starred = set(entry.original_only)
    if len(entry.families) == count:
        return "all*" if starred else "all"
    return ", ".join(name + "*" * (name in starred) for name in entry.families)
