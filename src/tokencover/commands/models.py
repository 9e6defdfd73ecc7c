"""``tokencover models``: which models can be pruned, and why others cannot."""

from __future__ import annotations

from dataclasses import asdict

from tokencover.commands.options import JsonInstead, print_json
from tokencover.tables import TextTable, print_table


def list_models(as_json: JsonInstead = False) -> None:
    """List the models that can be pruned, then those that are refused and why."""
    from tokencover.catalog import read_families, read_refused

    if as_json:
        print_json(
            {
                "supported": [asdict(entry) for entry in read_families()],
                "refused": [asdict(entry) for entry in read_refused()],
            }
        )
        return
    rows = [
        (entry.name, ", ".join(entry.model_types), entry.in_tower, entry.tested)
        for entry in read_families()
    ]
    print_table(TextTable(("family", "model types", "in the tower", "tested"), rows, words=4))
    print()
    refused = [(entry.model_type, entry.reason) for entry in read_refused()]
    print_table(TextTable(("refused", "why"), refused, words=2))
