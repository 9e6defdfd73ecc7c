"""A unit of work that is killed in its middle resumes there, and gives the same bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.evaluation.running import contents, do, image_task
from tokencover.evaluation import VisionLanguageModel, load_tasks, read_folder, store
from tokencover.evaluation.plan import Combination, EvaluationPlan
from tokencover.evaluation.records import ResultsError
from tokencover.evaluation.runner import ExampleError, GenerationSettings
from tokencover.methods import MoB

SLOW = """
import sys, time
from tokencover.evaluation import store, answering
store.SAVE_EVERY = 0.0
answer = answering.VisionLanguageModel.answer
def answer_slowly(self, inputs, **more):
    time.sleep(0.3)
    return answer(self, inputs, **more)
answering.VisionLanguageModel.answer = answer_slowly
from tokencover.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def plan(tmp_path: Path) -> EvaluationPlan:
    task = load_tasks([str(image_task(tmp_path / "mine.jsonl", 7))])[0]
    return EvaluationPlan((Combination(None), Combination(MoB(64))), (task,), timed=False)


def stop_at(monkeypatch: pytest.MonkeyPatch, call: int, error: BaseException) -> list[int]:
    """Fail at the n-th batch; returns the sizes of all batches."""
    sizes: list[int] = []
    answer = VisionLanguageModel.answer

    def count(self: VisionLanguageModel, inputs: object, **more: int) -> list[str]:
        sizes.append(len(inputs["input_ids"]))  # type: ignore[index]
        if len(sizes) == call:
            raise error
        return answer(self, inputs, **more)

    monkeypatch.setattr(VisionLanguageModel, "answer", count)
    return sizes


def test_resumed_unit_is_byte_identical(
    pebble: VisionLanguageModel, plan: EvaluationPlan, tmp_path: Path
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    do(pebble, plan, whole, GenerationSettings(2))
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            do(pebble, plan, out, GenerationSettings(2))
    assert len(list(out.glob("*.partial"))) == 1
    with pytest.MonkeyPatch.context() as patched:
        sizes = stop_at(patched, 0, KeyboardInterrupt())
        do(pebble, plan, out, GenerationSettings(2))
    assert sizes == [2, 1, 2, 2, 2, 1]  # the first two batches were saved
    assert contents(out) == contents(whole)
    assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}


def test_killed_process_keeps_examples(tmp_path: Path) -> None:
    data = image_task(tmp_path / "mine.jsonl", 12)
    arguments = ["evaluate", "--tasks", str(data), "--batch-size", "2", "--threads", "1"]

    def start(out: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SLOW, *arguments, "--out", str(out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    out, whole = tmp_path / "out", tmp_path / "whole"
    process, deadline = start(out), time.monotonic() + 120
    while not list(out.glob("*.partial")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (saved,) = out.glob("*.partial")
    assert 2 <= len(json.loads(saved.read_text())["examples"]) < 12
    assert not list(out.glob("scores-*.json"))
    assert start(out).wait() == 0
    assert start(whole).wait() == 0
    assert contents(out) == contents(whole)
    assert not list(out.glob("*.partial"))


def test_saves_at_most_every_interval(
    pebble: VisionLanguageModel,
    plan: EvaluationPlan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results, _ = do(pebble, plan, tmp_path / "out", GenerationSettings(2))
    records = results.read(plan.work[0]).records
    now = [0.0]
    saved = store.PartialScores(results, plan.work[0], lambda: now[0])  # type: ignore[arg-type]
    saved.save(records[:2])
    assert not list((tmp_path / "out").glob("*.partial"))
    now[0] = store.SAVE_EVERY
    saved.save(records[:4])
    assert len(results.read_partial(plan.work[0])) == 4  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", ["foreign", "cut"])
def test_damaged_partial_is_named(
    pebble: VisionLanguageModel, plan: EvaluationPlan, tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, 3, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            do(pebble, plan, out, GenerationSettings(2))
    (path,) = out.glob("*.partial")
    text = path.read_text()
    broken = text[:-9] if damage == "cut" else text.replace('"mine"', '"other"')
    assert broken != text
    path.write_text(broken)
    with pytest.raises(
        ResultsError, match=r"partial is damaged or does not belong to this run.*Delete it"
    ):
        do(pebble, plan, out, GenerationSettings(2))
    assert path.read_text() == broken


def test_failed_example_is_asked_again_without_keep_going(
    pebble: VisionLanguageModel, plan: EvaluationPlan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    (tmp_path / "2.png").rename(tmp_path / "gone.png")
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, 4, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            do(pebble, plan, out, GenerationSettings(2, keep_going=True))
    with pytest.raises(ExampleError, match="q2 failed"):
        do(pebble, plan, out, GenerationSettings(2))
    (tmp_path / "gone.png").rename(tmp_path / "2.png")
    do(pebble, plan, out, GenerationSettings(2))
    do(pebble, plan, tmp_path / "whole", GenerationSettings(2))
    assert contents(out) == contents(tmp_path / "whole")


def test_unfinished_unit_is_no_result(
    pebble: VisionLanguageModel, plan: EvaluationPlan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patched:
        stop_at(patched, 6, KeyboardInterrupt())  # in the second unit
        with pytest.raises(KeyboardInterrupt):
            do(pebble, plan, out, GenerationSettings(2))
    assert len(read_folder(out).rows) == 1
