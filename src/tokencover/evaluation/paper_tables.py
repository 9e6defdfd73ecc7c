"""The MoB paper's Tables 5 (which contains Table 1), 2 and 3, from ``data/paper_tables.json``.

Scores by benchmark, and the "Avg." that is printed last. `mob` is MoB without, `mob+prior` with the
paper's prior on coupling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokencover.files import read_object

VANILLA: Final = "vanilla"


@dataclass(frozen=True)
class PaperRow:
    """One row of a table, with the printed scores by benchmark and "Avg." in percent.

    `reduction` is the percentage of visual tokens that is dropped; `method` is "vanilla" or a name
    of `METHODS`, and "mob+prior" is MoB with the paper's prior.
    """

    table: int
    model: str
    reduction: float
    method: str
    scores: dict[str, float]
    printed_average: float


def _read_rows() -> Iterator[PaperRow]:
    content = read_object(Path(__file__).parent / "data" / "paper_tables.json")
    for section in content["sections"]:
        table, model, reduction = section["table"], section["model"], float(section["reduction"])
        benchmarks = content["benchmarks"][str(table)]
        for method, (*cells, average) in section["rows"].items():
            pairs = zip(benchmarks, cells, strict=True)
            scores = {name: float(cell) for name, cell in pairs if cell is not None}
            yield PaperRow(table, model, reduction, method, scores, float(average))


PAPER_ROWS: Final = tuple(_read_rows())
