"""The command line with quantized weights: it runs, and results say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokencover.evaluation import read_folder

FEW = ["--limit", "1", "--timing-batches", "0"]


def call(*arguments: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tokencover", *map(str, arguments)],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
def test_evaluate_records_quantization_and_resumes(tmp_path: Path, quantization: str) -> None:
    out = tmp_path / "results"
    options = ["--quantization", quantization, "--attention", "eager", "--out", out]
    command = ["evaluate", "--methods", "mob", "--budgets", "64", *FEW, *options]
    first = call(*command)
    model = json.loads((out / "run.json").read_text())["model"]
    assert model["quantization"] == quantization
    assert model["options"] == {"quantization": quantization, "attn_implementation": "eager"}
    stored = read_folder(out)
    assert stored.title == f"pebble ({quantization})"
    assert repr(stored).startswith(f"Results of pebble ({quantization}) on 14 tasks")
    assert stored.to_latex()
    assert call(*command) == first
    told = call(*command[: command.index("--quantization")], "--out", out, code=2)
    assert f"model.quantization was '{quantization}', now None" in told


def test_report_marks_quantized_results(tmp_path: Path) -> None:
    plain, quantized = tmp_path / "plain", tmp_path / "quantized"
    evaluate = ["evaluate", "--methods", "mob", "--budgets", "64", *FEW]
    call(*evaluate, "--out", plain)
    call(*evaluate, "--quantization", "8bit", "--out", quantized)
    page = tmp_path / "page.html"
    call("report", quantized, "--against", plain, "--out", page, "--images", "1")
    text = page.read_text(encoding="utf-8")
    assert "Pruning visual tokens of pebble (8bit)" in text
    assert "quantization 8bit" in text


def test_bench_measures_quantized_weights(tmp_path: Path) -> None:
    sizes = {}
    for quantization in ("none", "8bit", "4bit"):
        path = tmp_path / f"{quantization}.json"
        options = [] if quantization == "none" else ["--quantization", quantization]
        shown = call(
            "bench", "--methods", "mob", "--budgets", "64", "--repeats", "1", "--tokens-out", "1",
            "--out", path, *options,
        )  # fmt: skip
        document = json.loads(path.read_text())
        loading = document["setting"].pop("loading", {})
        given = {"quantization": quantization}
        assert loading == ({} if quantization == "none" else {**given, "options": given})
        assert (f"quantization {quantization}" in shown) is (quantization != "none")
        facts = document["unpruned"]["facts"]
        sizes[quantization] = document["setting"]["weights_bytes"]
        if quantization == "none":
            expected = facts["vision_flops"], facts["prefill_flops"]
        assert (facts["vision_flops"], facts["prefill_flops"]) == expected
    assert sizes["4bit"] < sizes["8bit"] < sizes["none"] / 2


def test_ask_and_calibrate_run_quantized(tmp_path: Path) -> None:
    answers = json.loads(call("ask", "--quantization", "8bit", "--out", tmp_path, "--json"))
    assert answers[0]["pruned"] == answers[0]["right"]
    profile = tmp_path / "profile.json"
    call("calibrate", "--quantization", "4bit", "--limit", "20", "--out", profile)
    assert json.loads(profile.read_text())["model"] == "pebble (4bit)"
