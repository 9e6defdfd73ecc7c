import pytest

from tests.evaluation.made_results import get_paper_row
from tokencover.evaluation.report.paper_comparison import PAPER_ROWS, VANILLA, PaperRow
from tokencover.evaluation.scoring import average_relative
from tokencover.methods import METHODS

ROUNDING = 0.1 + 1e-9

NOT_REPRODUCED = {
    ("LLaVA-1.5-7B", 66.7, "pyramiddrop"): 97.1,
    ("LLaVA-1.5-7B", 77.8, "pyramiddrop"): 95.8,
    ("LLaVA-1.5-7B", 88.9, "pyramiddrop"): 84.6,
    ("LLaVA-1.5-7B", 88.9, "hired"): 86.9,
    ("Qwen2-VL-7B", 66.7, "dart"): 97.2,
    ("Qwen2-VL-7B", 77.8, "dart"): 94.2,
    ("Qwen2-VL-7B", 77.8, "fastv"): 90.5,
}
"""Rows whose printed "Avg." is not the mean of their own cells, with what that mean is."""


def average_row(row: PaperRow) -> float:
    return average_relative(row.scores, get_paper_row(row.model, 0.0, VANILLA).scores)


@pytest.mark.parametrize(
    ("model", "reduction", "method", "printed"),
    [
        ("LLaVA-1.5-7B", 66.7, "mob", 100.2),
        ("LLaVA-1.5-7B", 66.7, "mob+prior", 100.6),
        ("LLaVA-1.5-7B", 77.8, "mob", 99.2),
        ("LLaVA-1.5-7B", 77.8, "mob+prior", 99.4),
        ("LLaVA-1.5-7B", 88.9, "mob", 96.3),
        ("LLaVA-1.5-7B", 88.9, "mob+prior", 96.4),
        ("LLaVA-Next-7B", 88.9, "mob+prior", 95.4),
        ("Qwen2-VL-7B", 66.7, "mob+prior", 98.4),
        ("Qwen2-VL-7B", 77.8, "mob+prior", 95.2),
        ("Qwen2-VL-7B", 88.9, "mob+prior", 88.6),
        ("Video-LLaVA-7B", 93.4, "mob+prior", 97.9),
    ],
)
def test_averages_of_mob_are_the_printed_ones(
    model: str, reduction: float, method: str, printed: float
) -> None:
    row = get_paper_row(model, reduction, method)
    assert row.printed_average == printed
    assert average_row(row) == pytest.approx(printed, abs=0.1)


def key(row: PaperRow) -> tuple[str, float, str]:
    return row.model, row.reduction, row.method


def test_which_rows_do_not_reproduce() -> None:
    found = {
        key(row): round(average_row(row), 1)
        for row in PAPER_ROWS
        if abs(average_row(row) - row.printed_average) > ROUNDING
    }
    assert found == NOT_REPRODUCED


def test_every_row_is_there_once() -> None:
    assert len({key(row) for row in PAPER_ROWS}) == len(PAPER_ROWS) == 72
    counts = {table: sum(row.table == table for row in PAPER_ROWS) for table in (2, 3, 5)}
    assert counts == {2: 10, 3: 6, 5: 56}


def test_rows_are_of_our_methods() -> None:
    known = {method.name for method in METHODS} | {"vanilla", "mob+prior"}
    assert {row.method for row in PAPER_ROWS} <= known


def test_missing_cells_are_left_out_of_the_average() -> None:
    row = get_paper_row("LLaVA-Next-7B", 88.9, "twigvlm")
    assert set(row.scores) == {"MMB", "SQA", "GQA", "MME", "TextVQA", "VQAv2"}
