"""``tokencover models``: which models can be pruned."""

from __future__ import annotations

from tokencover.tables import TextTable, print_table


def list_models() -> None:
    """List the model families that can be pruned."""
    from tokencover.catalog import read_families

    rows = [(entry.name, ", ".join(entry.model_types)) for entry in read_families()]
    print_table(TextTable(("family", "model types"), rows, words=2))
