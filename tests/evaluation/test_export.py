"""All numbers of a folder in one document, to send."""

import json
from pathlib import Path

from tests.commands.calling import call
from tests.evaluation.made_results import open_folder, write
from tokencover.evaluation import EXPORT_KIND
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
