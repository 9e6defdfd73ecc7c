"""All numbers of a folder in one document, to send."""

import json
from dataclasses import replace
from pathlib import Path

from tests.cli.calling import call
from tests.evaluation.made_results import open_folder, write
from tokencover.evaluation import EXPORT_KIND, Example, Task, read_folder
from tokencover.evaluation.lmms import get_benchmark
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.records import Record, Scores
from tokencover.evaluation.report import make_markdown
from tokencover.evaluation.results import export_results
from tokencover.methods import MoB


def test_all_numbers_are_exported(tmp_path: Path) -> None:
    results = open_folder(tmp_path / "results", "llava-1.5-7b-hf")
    write(results, None, {"GQA": [1.0, 1.0, 0.0, 1.0], "POPE": [1.0, None]})
    write(
        results,
        MoB(64),
        {"GQA": [1.0, 0.0, 0.0, 1.0], "POPE": [1.0, 1.0]},
        tokens=64,
        flops=0.25,
        seconds=(2.0, 1.0),
    )
    out = tmp_path / "export.json"
    page = tmp_path / "page.html"
    call("report", str(tmp_path / "results"), "--out", str(page), "--export", str(out))
    found = json.loads(out.read_text())
    assert (found["format"], found["version"]) == (EXPORT_KIND, 1)
    assert found["run"]["model"]["name"] == "llava-1.5-7b-hf"
    assert found["groups"] == {"GQA": "weak", "POPE": "weak"}
    unpruned, mob = found["rows"]
    assert unpruned["tasks"] == {
        "GQA": {"score": 0.75, "examples": 4, "failed": 0},
        "POPE": {"score": 1.0, "examples": 2, "failed": 1},
    }
    assert (mob["name"], mob["budget"], mob["method"]["budget"]) == ("mob", "64", 64)
    assert mob["average"] == 100 * (0.5 / 0.75 + 1.0) / 2
    assert (mob["tokens"], mob["flops"], mob["first_token"]) == (64, 0.25, 0.5)
    assert "yes" not in out.read_text()  # no answers


def test_benchmarks_of_the_paper_say_what_they_are(tmp_path: Path) -> None:
    """Their metrics, settings and the paper's number are sent along, and the report says more."""
    results = open_folder(tmp_path / "results", "llava-1.5-7b-hf")
    example = Example("0", (), "is it red ?", ("yes",), "0")
    task = Task(
        "MME", "weak", lambda: iter([example]), lambda *_: 1.0, "lmms-eval 0.7.3, mme: 6 questions",
        max_new_tokens=16, stops=("ASSISTANT:",), source="lmms:mme",
    )  # fmt: skip
    metrics = {"mme_perception_score": 125.0, "mme_cognition_score": 50.0}
    scores = Scores((Record("0", "0", "yes", 1.0, 576, 576.0, 1.0),), None, 0.4375, metrics)
    work = Scoring(Combination(None), task)
    results.write(work, scores)
    content = json.loads((results.folder / work.file).read_text())
    expected = {"do_sample": False, "max_new_tokens": 16, "until": ["ASSISTANT:"]}
    assert content["generation"] == expected
    results.write(replace(work, combination=Combination(MoB(64))), scores)

    stored = read_folder(str(results.folder))  # `out` takes a str too
    found = export_results(stored)
    assert found["rows"][0]["tasks"]["MME"] == {
        "score": 0.4375, "examples": 1, "failed": 0, "metrics": metrics,
    }  # fmt: skip
    told = found["tasks"]["MME"]
    assert (told["about"], told["source"]) == (task.version, "lmms:mme")
    assert (told["benchmark"]["paper"], told["benchmark"]["split"]) == (1862, "test")
    benchmark = get_benchmark("mme")
    assert benchmark is not None
    assert told["benchmark"]["differs"] == benchmark.differs
    assert "MME: perception and cognition together, as in the paper." in make_markdown(stored)
