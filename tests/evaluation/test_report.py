import re
from pathlib import Path

import pytest

from tests.evaluation.running import RUN
from tokencover.evaluation import find_tasks
from tokencover.evaluation.plan import Combination, Plan, Scoring, Timing
from tokencover.evaluation.report import collect, render
from tokencover.evaluation.results import Record, Results, Scores, Seconds
from tokencover.methods import DART, FastV, Method, MoB

TASKS = tuple(find_tasks(["pebble/color", "pebble/place"], limit=2))


def records(*scores: float | None, tokens: int = 64) -> Scores:
    return Scores(
        tuple(
            Record(str(number), str(number), failed="no")
            if score is None
            else Record(str(number), str(number), "x", score, tokens, tokens + 85.5, tokens / 576)
            for number, score in enumerate(scores)
        )
    )


def write(results: Results, method: Method | None, *by_task: Scores) -> Combination:
    made = Combination(method)
    for task, scores in zip(TASKS, by_task, strict=True):
        results.write(Scoring(made, task), scores)
    return made


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[each.strip() for each in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


@pytest.fixture
def text(tmp_path: Path) -> str:
    results = Results.open(tmp_path, RUN)
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
    return render(collect(Plan(made, TASKS), results))


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
    results = Results.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(0, 0)),
        write(results, MoB(64), records(1, 1), records(1, 0)),
    )
    found = render(collect(Plan(made, TASKS, timed=False), results))
    assert "Avg. is not defined: the unpruned model has no score in pebble/place." in found
    assert [cells[4] for cells in rows(found)[2:]] == ["-", "-"]
    assert rows(found)[3][-2] == "-"


def test_a_method_that_cannot_do_one_task_says_which(tmp_path: Path) -> None:
    results = Results.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(1, 1)),
        write(results, MoB(64), records(1, 1), Scores(cannot="too small")),
    )
    found = render(collect(Plan(made, TASKS, timed=False), results))
    assert "cannot: pebble/place: too small" in found


def test_any_method_can_be_the_reference(tmp_path: Path) -> None:
    results = Results.open(tmp_path, RUN)
    made = (
        write(results, None, records(1, 1), records(1, 1)),
        write(results, MoB(64), records(1, 1), records(1, 1)),
        write(results, FastV(64, after=3), records(0, 0), records(1, 1)),
    )
    plan = Plan(made, TASKS, timed=False)
    for reference in ("fastv", "fastv(after=3)"):
        found = rows(render(collect(plan, results), reference))
        assert found[0][-1] == f"minus {reference} [95 %]"
        assert [cells[-1] for cells in found[2:]] == ["-", "+50.0 [+50.0, +50.0]", "-"]
