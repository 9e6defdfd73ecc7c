"""What the study asks, and how it sums up: `benchmarks/study.py` and its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tokencover as tc
from study import main
from study_plan import COSTS, METHODS, MODES, find_amounts, list_specs, make_tasks
from study_tables import Found, compute_tau, make_score_table
from tokencover.budget import BudgetMode
from tokencover.methods import METHODS as REGISTERED
from tokencover.methods import make_method
from tokencover.pebble import PICTURE_CHECKPOINT
from tokencover.pebble.data import PICTURE_TOKENS, draw_scene, make_scene
from tokencover.statistics import Interval

EXTRA = {"final_wipe", "globalcom2"}
"""Not compared: what goes on top of others, and what needs several crops."""


@pytest.fixture(scope="module")
def pebble() -> tuple[Any, Any]:
    return tc.load("pebble")


@pytest.mark.parametrize("mode", MODES)
def test_at_each_cost_the_papers_mob_keeps_its_tokens(pebble: Any, mode: BudgetMode) -> None:
    model, processor = pebble
    inputs = tc.make_inputs(processor, [([draw_scene(make_scene(7))], "what number is here ?")])
    for amount in find_amounts(model, mode, PICTURE_TOKENS):
        method = tc.MoB(amount.budget, budget_mode=amount.mode)
        with torch.inference_mode(), tc.prune(model, method, processor=processor) as run:
            model(**inputs, logits_to_keep=1)
        assert len(run.trace[0].kept) == pytest.approx(amount.cost, abs=1)


@pytest.mark.parametrize("every", [2, 4])
def test_every_scene_is_asked_a_part_of_the_kinds(every: int) -> None:
    tasks = make_tasks("pebble", "test", 4, every)
    asked = {int(each.id): 0 for task in tasks for each in task.examples()}
    for task in tasks:
        for example in task.examples():
            asked[int(example.id)] += 1
    assert sum(asked.values()) == len(tasks) * 4 // every
    assert max(asked.values()) - min(asked.values()) <= 1


def test_every_method_is_compared(pebble: Any) -> None:
    assert {method.name for method in REGISTERED} - EXTRA == set(METHODS)
    amounts = find_amounts(pebble[0], "exact", PICTURE_TOKENS)
    specs = list_specs(["mob", "fastv"], {"fastv": {"after": 3}}, amounts)
    assert len(specs) == 2 * len(COSTS)
    assert {getattr(make_method(spec), "after", None) for spec in specs} == {1, 3}


def test_agreement_and_doubt_are_told() -> None:
    def reached(score: float, low: float, high: float) -> Found:
        return Found(score, 0.2, Interval((low + high) / 2, low, high))

    one = {("a", cost): reached(0.9, 0.1, 0.2) for cost in COSTS}
    one |= {("b", cost): reached(0.5, -0.3, -0.2) for cost in COSTS}
    other = {**one, ("b", COSTS[0]): reached(0.95, -0.1, 0.1)}
    assert compute_tau(one, one, COSTS[0]) == 1
    assert compute_tau(one, other, COSTS[0]) == -1
    lines = make_score_table({"one": one, "other": other}).splitlines()
    assert lines[2].startswith("| a | 90.0 +2 | 90.0 +2 |")
    assert lines[3].startswith("| b | 72.5 -1 | 50.0 -2 |")


def test_a_study_that_was_stopped_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def study(folder: Path) -> str:
        options = "--seeds 0 --methods random --modes flops --scenes 1 --clips 0 --validation 1"
        options += f" --workers 1 --timed 0 --out {folder}"
        monkeypatch.setattr("sys.argv", ["study.py", *options.split()])
        main()
        return capsys.readouterr().out

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "seed0").symlink_to(PICTURE_CHECKPOINT)
    monkeypatch.setattr("study.MODELS", tmp_path / "models")
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    told = study(whole)
    assert "## Equal operations of the prefill" in told
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.json"))
    begun = [name for name in files if name.name == "run.json" or "color" in name.name]
    for name in begun:
        (halved / name).parent.mkdir(parents=True, exist_ok=True)
        (halved / name).write_bytes((whole / name).read_bytes())
    assert study(halved).splitlines()[-5:] == told.splitlines()[-5:]
    assert files == sorted(path.relative_to(halved) for path in halved.rglob("*.json"))
    for name in files:
        assert (whole / name).read_bytes() == (halved / name).read_bytes(), name
