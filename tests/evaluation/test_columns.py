import csv
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.running import RUN
from tokencover.evaluation import Results, columns, export_results, load_tasks
from tokencover.evaluation import results as results_module
from tokencover.evaluation.columns import Column, make_table
from tokencover.evaluation.formats import as_html, as_latex, as_markdown, escape_latex, render
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring, Timing
from tokencover.evaluation.records import Record, Scores, Seconds
from tokencover.evaluation.results import read_folder
from tokencover.evaluation.scoring import ResultRow, collect
from tokencover.evaluation.store import ResultsFolder
from tokencover.methods import DART, CDPruner, FastV, Method, MoB
from tokencover.tables import print_table

TASKS = tuple(load_tasks(["pebble/color", "pebble/place"], limit=2))


def records(*scores: float | None, tokens: int = 64) -> Scores:
    return Scores(
        tuple(
            Record(str(number), str(number), failed="no")
            if score is None
            else Record(str(number), str(number), "x", score, tokens, tokens + 85.5, tokens / 576)
            for number, score in enumerate(scores)
        )
    )


def write(results: ResultsFolder, method: Method | None, *by_task: Scores) -> Combination:
    made = Combination(method)
    for task, scores in zip(TASKS, by_task, strict=True):
        results.write(Scoring(made, task), scores)
    return made


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.fixture
def results(tmp_path: Path) -> list[ResultRow]:
    results = ResultsFolder.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1, tokens=576), records(1, 0, tokens=576)),
        write(results, MoB(64), records(1, 0), records(1, 0)),
        write(results, FastV(64), records(0, 0), records(1, 0)),
        write(results, DART(64), Scores(cannot="no\nkeys | here"), Scores(cannot="no keys")),
        write(results, FastV(32), records(1, None, tokens=32), records(1, 1, tokens=32)),
    )
    for combination in made[1:]:
        seconds = Seconds((2.0, 4.0, 3.0), (1.0, 9.0, 1.5))
        results.write(Timing(combination, TASKS[0]), seconds)
    return collect(EvaluationPlan(made, TASKS), results)


@pytest.fixture
def text(results: list[ResultRow]) -> str:
    return str(render(results))


def test_the_table(text: str) -> None:
    header, _, unpruned, mob, fastv, dart, small = (" ; ".join(row) for row in rows(text))
    assert header.startswith("method ; budget ; fine ; coarse ; Avg. % ; tokens left ; ")
    assert header.endswith("mean per layer ; FLOPs % ; TTFT ratio ; minus mob [95 %]")
    assert unpruned == ("unpruned ; - ; 100.0 ; 50.0 ; 100.0 ; 576.0 ; 661.5 ; 100.0 ; 1.00 ; -")
    assert mob == "mob ; 64 ; 50.0 ; 50.0 ; 75.0 ; 64.0 ; 149.5 ; 11.1 ; 0.50 ; -"
    assert fastv.startswith("fastv ; 64 ; 0.0 ; 50.0 ; 50.0 ; 64.0 ; 149.5 ; 11.1 ; 0.50 ; ")
    assert dart.startswith(r"dart ; 64 ; cannot: no keys \| here ; - ; ")
    assert small == "fastv ; 32 ; 100.0 ; 100.0 ; 150.0 ; 32.0 ; 117.5 ; 5.6 ; 0.50 ; -"
    bars = re.findall(r"(?<!\\)\|", text)
    assert len(bars) == 7 * (10 + 1)


def test_differences_are_to_the_reference_at_the_same_budget(text: str) -> None:
    fastv, small = (rows(text)[number][-1] for number in (4, 6))
    assert fastv == "-25.0 [-50.0, +0.0]"
    assert small == "-"


def test_failures_are_told(text: str) -> None:
    assert "fastv 32: 1 of 4 examples failed, not scored." in text


def test_an_average_that_is_not_defined_is_told(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(0, 0)),
        write(results, MoB(64), records(1, 1), records(1, 0)),
    )
    found = str(render(collect(EvaluationPlan(made, TASKS, timed=False), results)))
    assert "Avg. is not defined: the unpruned model has no score in pebble/place." in found
    assert [cells[4] for cells in rows(found)[2:]] == ["-", "-"]
    assert "TTFT ratio" not in found, "nothing was timed"


def test_a_method_that_cannot_do_one_task_says_which(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(1, 1)),
        write(results, MoB(64), records(1, 1), Scores(cannot="too small")),
    )
    found = str(render(collect(EvaluationPlan(made, TASKS, timed=False), results)))
    assert "cannot: pebble/place: too small" in found


@pytest.mark.parametrize("method", [CDPruner(64), CDPruner.as_released(64), MoB(64)])
def test_a_table_warns_of_methods_that_are_not_their_papers(method: Method, tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(1, 1)),
        write(results, method, records(1, 1), records(1, 1)),
    )
    found = str(render(collect(EvaluationPlan(made, TASKS, timed=False), results)))
    assert ("its rows are not those of its paper" in found) == isinstance(method, CDPruner)


def test_any_method_can_be_the_reference(tmp_path: Path) -> None:
    results = ResultsFolder.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(1, 1)),
        write(results, MoB(64), records(1, 1), records(1, 1)),
        write(results, FastV(64, after=3), records(0, 0), records(1, 1)),
    )
    plan = EvaluationPlan(made, TASKS, timed=False)
    for reference in ("fastv", "fastv:after=3", "fastv(after=3)"):
        found = rows(str(render(collect(plan, results), reference)))
        assert found[0][-1] == f"minus {reference} [95 %]"
        assert [cells[-1] for cells in found[2:]] == ["-", "+50.0 [+50.0, +50.0]", "-"]


def make_results(results: list[ResultRow]) -> Results:
    groups = {task.name: task.group for task in TASKS}
    return Results({"model": {"name": "pebble"}}, groups, tuple(results))


def test_new_column_is_one_entry(
    results: list[ResultRow],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An entry of `list_columns` appears wherever results are written."""
    listed = columns.list_columns

    def count(row: ResultRow) -> int | None:
        return None if row.summary is None else row.summary.failed

    def more(*arguments: Any) -> list[Column]:
        column = Column(
            "num_failed", count, "failures", lambda row: str(count(row)), "Failures are counted."
        )
        return [*listed(*arguments), column]

    monkeypatch.setattr(columns, "list_columns", more)
    monkeypatch.setattr(results_module, "list_columns", more)
    table = make_table(results, ["fine", "coarse"], ["pebble/color", "pebble/place"])
    assert table.header[-1] == "failures"
    assert "Failures are counted." in table.notes["cost"]
    assert as_markdown(table).splitlines()[-1].endswith(" | 1 |")
    assert as_latex(table).splitlines()[-3].endswith(r" & 1 \\")
    assert "<th>failures</th>" in as_html(table)
    print_table(render(results))
    assert "failures |" in capsys.readouterr().out
    stored = make_results(results)
    assert repr(stored).splitlines()[1].endswith("  failures")
    assert [row["num_failed"] for row in stored.to_dicts()] == [0, 0, 0, None, 1]
    assert stored.to_csv().splitlines()[0].endswith(",num_failed")
    assert stored.to_csv().splitlines()[-1].endswith(",1")
    assert [row["num_failed"] for row in export_results(stored)["rows"]] == [0, 0, 0, None, 1]


def test_csv_is_what_a_program_reads(results: list[ResultRow]) -> None:
    header, *lines = csv.reader(io.StringIO(make_results(results).to_csv()))
    assert header[:6] == [
        "method", "budget", "budget_mode", "accuracy", "accuracy_fine", "accuracy_coarse",
    ]  # fmt: skip
    assert [[*line[:2], line[4]] for line in lines] == [
        ["unpruned", "", "1.0"],
        ["mob", "64", "0.5"],
        ["fastv", "64", "0.0"],
        ["dart", "64", ""],
        ["fastv", "32", "1.0"],
    ]
    assert {len(line) for line in lines} == {len(header)}
    assert header[-5:-2] == ["difference", "difference_low", "difference_high"]
    assert lines[2][-5:-2] == ["-0.25", "-0.5", "0.0"]
    assert lines[3][-1] == "no\nkeys | here"
    assert set(lines[3][3:-1]) == {""}


def test_latex_marks_and_escapes(results: list[ResultRow]) -> None:
    table = make_table(results, ["fine", "coarse"], ["pebble/color", "pebble/place"])
    lines = as_latex(table).splitlines()
    assert lines[0] == r"\begin{tabular}{llrrrrrrrr}"
    assert lines[2].startswith(r"method & budget & fine & coarse & Avg. \% & ")
    assert lines[-1] == r"\end{tabular}"
    assert r"mob & 64 & \textbf{50.0} & 50.0 & \textbf{75.0} & 64.0 & " in as_latex(table)
    assert r"\multicolumn{8}{l}{cannot: no keys \textbar{} here} \\" in as_latex(table)
    assert lines.count(r"\hline") == 5  # above and below the header, budgets, and the end
    assert escape_latex("a_b 5% {x} \\ ~") == r"a\_b 5\% \{x\} \textbackslash{} \textasciitilde{}"


def test_ranks_can_be_left_out(results: list[ResultRow]) -> None:
    table = make_table(results, ["fine", "coarse"], ["pebble/color", "pebble/place"])
    assert "**50.0**" in as_markdown(table)
    assert "**" not in str(render(results))


def test_notes_say_what_columns_have_in_common_once(results: list[ResultRow]) -> None:
    table = make_table(results, ["fine", "coarse"], ["pebble/color", "pebble/place"])
    assert list(table.notes) == ["quality", "cost", "difference"]
    assert table.notes["quality"].count("Accuracy in percent") == 1
    assert all(note.endswith(".") for note in table.notes.values())
    assert " ".join(table.notes.values()) in str(render(results))


@pytest.mark.parametrize(
    ("groups", "headings"),
    [
        ({"mine": "all"}, ["mine"]),  # a single task is headed by its name
        ({"mine": "charts"}, ["mine"]),
        ({"pebble/color": "fine"}, ["pebble/color"]),
        ({"pebble/color": "fine", "mine": "all"}, ["fine", "mine"]),
        ({"mine": "all", "other": "all"}, ["all"]),
        ({"mine": "charts", "other": "signs"}, ["charts", "signs"]),
    ],
)
def test_column_heading_of_single_task_is_its_name(
    groups: dict[str, str], headings: list[str], tmp_path: Path
) -> None:
    folder = ResultsFolder.open(tmp_path, RUN)
    tasks = tuple(replace(TASKS[0], name=name, group=group) for name, group in groups.items())
    unpruned = Combination(None)
    for task in tasks:
        folder.write(Scoring(unpruned, task), records(1, 1))
    stored = read_folder(tmp_path)
    found = collect(EvaluationPlan((unpruned,), tasks, timed=False), folder)
    for table in (stored.compare(), make_table(found, list(dict.fromkeys(groups.values())), [])):
        place = table.header.index("Avg. %")
        assert sorted(table.header[:place]) == sorted(headings)
    row = stored.to_dicts()[0]  # columns for programs keep the names of groups
    assert {f"accuracy_{group}" for group in groups.values()} <= set(row)
