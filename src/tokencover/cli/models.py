"""``tokencover models``: which models can be pruned, and why others cannot."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tokencover.cli.options import JsonInstead, print_json
from tokencover.tables import TextTable, print_facts, print_table

if TYPE_CHECKING:
    from tokencover.catalog import FamilyEntry

REASON_WIDTH: Final = 56
"""Letters of a reason that fit in 80 columns beside the longest model type."""
NOTES: Final = (
    "vision encoder: whether methods can read its attention, and merge tokens in it.",
    "`tokencover models NAME` shows one family; `tokencover methods --model NAME`",
    "lists its methods.",
)

FamilyName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="Show one: a bundled model, a folder, a hub name, a family or a model type.",
    ),
]


def list_models(name: FamilyName = None, as_json: JsonInstead = False) -> None:
    """List the model families that can be pruned, then model types that cannot and why."""
    from tokencover.catalog import read_families, read_refused
    from tokencover.cli.model_family import resolve_family

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
    notes = (*NOTES, "Each model type is tested by value.") if is_each_tested else NOTES
    print_table(TextTable(header, supported, words=len(header), notes=notes))
    print()
    refused = [(entry.model_type, _shorten(entry.reason)) for entry in read_refused()]
    print_table(TextTable(("refused", "why"), refused, words=2))


def _shorten(reason: str) -> str:
    """Cut a reason to one line of 80 columns; `tokencover models TYPE` shows all of it."""
    return textwrap.shorten(reason, REASON_WIDTH, placeholder=" ...", break_on_hyphens=False)


def _describe_family(family: FamilyEntry) -> list[tuple[str, str]]:
    """Names and values of what there is to know about a family."""
    from tokencover.catalog import read_methods

    runs = [each.name for each in read_methods() if family.name in each.families]
    return [
        ("family", family.name),
        ("model types", ", ".join(family.model_types)),
        ("vision encoder", family.in_tower),
        ("tiles", "yes" if family.tiles else "no"),
        ("tested", family.tested),
        ("methods", ", ".join(runs)),
    ]
