"""What the top of a report says: the verdict, and warnings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.evaluation.made_results import open_folder, write
from tests.evaluation.running import image_task
from tokencover.evaluation import Results, read_folder
from tokencover.evaluation.report import make_markdown, make_page
from tokencover.evaluation.report.text import summarize_budgets, write_verdict
from tokencover.methods import DART, FastV, Method, MoB, Random

COUNT = 40
"""Examples, each a cluster."""


def score(right: int, count: int = COUNT) -> dict[str, list[float | None]]:
    return {"GQA": [float(place < right) for place in range(count)]}


def store(
    folder: Path, rows: Sequence[tuple[Method | None, int, float]], count: int = COUNT
) -> Results:
    """Results of methods with so many correct answers at a fraction of the FLOPs."""
    results = open_folder(folder)
    for method, right, flops in rows:
        write(results, method, score(right, count), flops=flops)
    return read_folder(folder)


def test_verdict_names_cheapest_method_above_target(tmp_path: Path) -> None:
    stored = store(
        tmp_path,
        [
            (None, 40, 1.0), (MoB(128), 40, 0.5), (FastV(128), 39, 0.3),
            (MoB(64), 39, 0.2), (FastV(64), 20, 0.1),
        ],
    )  # fmt: skip
    assert write_verdict(stored) == [
        "The cheapest method that keeps 95 % of the unpruned accuracy is mob at budget 64: 97.5 % "
        "of the accuracy at 20 % of the FLOPs; its difference to the unpruned model is -2.5 points "
        "[-7.5, +0.0], not significant.",
        "The best method is significantly better than the second at 1 of 2 budgets.",
    ]
    assert summarize_budgets(stored, "fastv") == [
        "Budget 128: mob is the best of 2 methods with 100.0 % of the accuracy at 50 % of the "
        "FLOPs, not significantly better than fastv; fastv keeps 97.5 % of the accuracy at 30 % of "
        "the FLOPs (-2.5 points [-7.5, +0.0], not significant).",
        "Budget 64: mob is the best of 2 methods with 97.5 % of the accuracy at 20 % of the FLOPs, "
        "significantly better than fastv; fastv keeps 50.0 % of the accuracy at 10 % of the FLOPs "
        "(-47.5 points [-62.5, -32.5], significant).",
    ]


def test_verdict_without_method_above_target_names_closest(tmp_path: Path) -> None:
    stored = store(tmp_path, [(None, 40, 1.0), (MoB(64), 30, 0.2), (Random(64), 5, 0.1)])
    assert write_verdict(stored)[0] == (
        "No method keeps 95 % of the unpruned accuracy; the closest is mob at budget 64 with "
        "75.0 % of the accuracy at 20 % of the FLOPs."
    )
    assert write_verdict(stored)[1] == "The best method is significantly better than the second."


def test_verdict_with_few_examples_is_never_significant(tmp_path: Path) -> None:
    stored = store(tmp_path, [(None, 4, 1.0), (MoB(64), 4, 0.2), (DART(64), 0, 0.1)], count=4)
    assert write_verdict(stored)[1].endswith("not significantly better than the second.")
    assert "not significant: only 4 clusters of examples" in summarize_budgets(stored, "dart")[0]


def test_verdict_of_one_method_has_no_contest(tmp_path: Path) -> None:
    stored = store(tmp_path, [(None, 40, 1.0), (MoB(64), 40, 0.2)])
    assert len(write_verdict(stored)) == 1
    assert summarize_budgets(stored, "mob") == [
        "Budget 64: mob keeps 100.0 % of the accuracy at 20 % of the FLOPs."
    ]


@pytest.mark.parametrize("rows", [[(MoB(64), 30, 0.2)], [(None, 30, 1.0)]])
def test_verdict_needs_unpruned_model_and_method(
    rows: list[tuple[Method | None, int, float]], tmp_path: Path
) -> None:
    assert write_verdict(store(tmp_path, rows)) == []


def test_verdict_is_at_top_of_page(tmp_path: Path) -> None:
    stored = store(tmp_path, [(None, 40, 1.0), (MoB(64, after=0), 39, 0.2), (DART(64), 20, 0.1)])
    page, text = make_page(stored), make_markdown(stored)
    top = page.partition("About this run")[0]
    assert '<p class="verdict">The cheapest method that keeps 95 %' in top
    assert "mob:after=0 is the best of 2 methods" in top  # the reference goes by its bare name
    assert 'class="reference"><th scope="row">mob:after=0</th>' in page
    assert text.index("The cheapest method") < text.index("| method |")
    assert "Warning" not in top


def test_unpruned_accuracy_of_zero_is_warned_of(tmp_path: Path) -> None:
    stored = store(tmp_path, [(None, 0, 1.0), (MoB(64), 1, 0.2)])
    for text in (make_page(stored).partition("About this run")[0], make_markdown(stored)):
        assert "The unpruned model scores 0 % in GQA" in text
        assert "meaningless" in text
        assert "keeps" not in text


def test_evaluate_warns_of_zero_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = image_task(tmp_path / "mine.jsonl", 2)
    rows = [
        {**json.loads(line), "answers": ["purple-ish"]} for line in path.read_text().split("\n")
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    results, page = tmp_path / "results", tmp_path / "page.html"
    call("evaluate", "--tasks", path, "--timing-batches", 0, "--threads", 1, "--out", results)
    warned = capsys.readouterr().err
    assert "WARNING: The unpruned model scores 0 % in mine: scores relative to it are" in warned
    assert "the reference is 'purple-ish'." in warned
    call("report", results, "--out", page)
    assert "The unpruned model scores 0 % in mine" in page.read_text()
    assert ">mine</button>" in page.read_text()  # a single task heads its column
