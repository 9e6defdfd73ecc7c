"""`tc.evaluate`, as a Python program calls it."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tokencover as tc
from tests.evaluation.running import contents
from tokencover.errors import InputError, MissingPackageError
from tokencover.evaluation import Combination, Example, VisionLanguageModel, load_tasks
from tokencover.pruning import prune
from tokencover_models.pebble.data import make_examples

METHODS = [tc.MoB(64), tc.VisionZip(64), tc.ToMe(64)]


@pytest.fixture(scope="module")
def results(pebble: VisionLanguageModel) -> tc.Results:
    data = ["pebble/color", "pebble/place"]
    return tc.evaluate(pebble.model, pebble.processor, methods=METHODS, tasks=data, limit=3)


def answer_alone(asked: VisionLanguageModel, example: Example, method: Any) -> str:
    """One question, one image, nothing cached."""
    inputs = asked.make_inputs([example])
    if method is None:
        return asked.answer(inputs)[0]
    with prune(asked.model, method, processor=asked.processor):
        return asked.answer(inputs)[0]


def test_answers_are_those_of_questions_asked_one_by_one(
    results: tc.Results, pebble: VisionLanguageModel
) -> None:
    for row in results:
        for task in load_tasks(["pebble/color", "pebble/place"], limit=3):
            expected = [
                answer_alone(pebble, each, row.combination.method) for each in task.examples()
            ]
            assert [record.answer for record in row.records[task.name]] == expected, row


def test_every_answer_says_what_was_asked_and_what_is_right(results: tc.Results) -> None:
    asked = [each for each in make_examples("test", 3) if each.kind in ("color", "place")]
    expected = {(each.question, each.answer) for each in asked}
    found = results.list_answers()
    assert len(found) == len(results) * 6
    assert {(each["question"], each["answers"][0]) for each in found} == expected
    for each in found:
        assert each["score"] == float(each["answer"] == each["answers"][0])


def test_rows_are_gone_through_and_named(results: tc.Results) -> None:
    assert [row.method for row in results] == ["unpruned", "mob", "visionzip", "tome"]
    assert [row.budget for row in results] == ["", "64", "64", "64"]
    assert len(results) == 4
    assert results[1].combination == Combination(tc.MoB(64))
    assert repr(results[1]).startswith("ResultRow(mob 64: ")
    assert results.finished


def test_numbers_are_shares_of_one(results: tc.Results) -> None:
    unpruned, mob, *_ = results.to_dicts()
    summary = results[1].summary
    assert summary is not None
    assert (unpruned["budget"], mob["budget"], mob["budget_mode"]) == (None, 64, "exact")
    assert (unpruned["relative"], unpruned["flops"], unpruned["tokens"]) == (1, 1, 576)
    assert mob["accuracy"] == sum(summary.accuracy.values()) / 2  # type: ignore[arg-type]
    assert mob["accuracy_fine"] == summary.accuracy["pebble/color"]
    assert mob["flops"] == summary.flops
    assert mob["difference"] is None


def test_csv_has_the_same_numbers(results: tc.Results, tmp_path: Path) -> None:
    text = results.to_csv(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == text
    read = list(csv.DictReader(io.StringIO(text)))
    for row, expected in zip(read, results.to_dicts(), strict=True):
        assert row == {key: "" if value is None else str(value) for key, value in expected.items()}
    answers = list(csv.DictReader(io.StringIO(results.to_csv(answers=True))))
    assert [each["answer"] for each in answers] == [
        each["answer"] for each in results.list_answers()
    ]


def test_latex_and_the_notebook_show_the_table(results: tc.Results) -> None:
    assert results.to_latex().splitlines()[2].startswith("method & budget & fine & coarse")
    page = results._repr_html_()
    assert page.count("<tr>") == 5
    assert "<th>mob</th><td>64</td>" in page
    title, header, _, mob, *_ = repr(results).splitlines()
    assert title == "Results of pebble on 2 tasks"
    assert header.split()[:4] == ["method", "budget", "fine", "coarse"]
    assert mob.split()[:2] == ["mob", "64"]


def test_a_data_frame_is_made_of_the_rows(
    results: tc.Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"to_pandas\(\) needs.*pip install 'pandas'"):
        results.to_pandas()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=tuple))
    assert results.to_pandas() == tuple(results.to_dicts())
    assert results.to_pandas(answers=True) == tuple(results.list_answers())


def test_rows_of_ones_own_are_asked_about(pebble: VisionLanguageModel) -> None:
    asked = [each for each in make_examples("test", 2) if each.kind == "color"]
    rows = [
        {"image": each.picture, "question": each.question, "answer": each.answer} for each in asked
    ]
    results = tc.evaluate(pebble, methods="mob", budgets=576, tasks=rows)
    assert list(results.groups) == ["data"]
    assert [each["score"] for each in results.list_answers()] == [1, 1, 1, 1]
    assert results.sources == {}


def test_a_folder_is_gone_on_with(pebble: VisionLanguageModel, tmp_path: Path) -> None:
    options: dict[str, Any] = {"tasks": "pebble/color", "limit": 1, "out": tmp_path}
    tc.evaluate(pebble, **options)
    before = contents(tmp_path)
    results = tc.evaluate(pebble, methods="divprune", budgets=[64], **options)
    assert before.items() < contents(tmp_path).items()
    assert results.reference == "divprune"
    assert results.sources == {"pebble/color": "pebble/color"}


def test_the_callers_objects_stay_as_they_were(pebble: VisionLanguageModel) -> None:
    pebble.model.train()
    pebble.processor.tokenizer.padding_side = "right"
    try:
        tc.evaluate(pebble, tasks="pebble/color", limit=1)
        assert pebble.model.training
        assert pebble.processor.tokenizer.padding_side == "right"
    finally:
        pebble.model.eval()
        pebble.processor.tokenizer.padding_side = "left"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": []}, "there are no tasks"),
        ({"tasks": [{"image": "nowhere.png", "question": "what ?", "answer": "x"}]}, "no file now"),
        ({"tasks": [{"question": "what ?", "answer": "x"}, "pebble"]}, "not both"),
        ({"methods": "mob"}, "mob has no budget"),
        ({"methods": "fastv", "budgets": 64, "reference": "mob"}, "compared with 'mob'.*fastv"),
        ({"reference": "mob"}, "only of the unpruned model"),
        ({"timing_batches": -1}, "got -1"),
    ],
)
def test_mistakes_are_told_before_a_model_is_loaded(options: Any, message: str) -> None:
    def load() -> VisionLanguageModel:
        raise AssertionError("a model was loaded")

    with pytest.raises(InputError, match=message):
        tc.evaluate(load, **options)


def test_a_model_needs_its_processor(pebble: VisionLanguageModel) -> None:
    with pytest.raises(InputError, match="needs its processor"):
        tc.evaluate(pebble.model, tasks="pebble/color", limit=1)
