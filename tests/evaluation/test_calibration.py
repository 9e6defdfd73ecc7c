"""Calibration: it measures what MoB sees, and a run that was stopped goes on."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.budget.coupling_streams import one_heap, two_heaps
from tests.cli.calling import call
from tests.evaluation.running import image_task
from tests.methods.views import hand_made
from tokencover import evaluation
from tokencover.budget.profile import Profile
from tokencover.cli.calibrate import describe_profile, draw_bars
from tokencover.evaluation import VisionLanguageModel, calibration, load_tasks
from tokencover.evaluation.calibration import MeasureCoupling, calibrate
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.records import ResultsError

DATA = ("pebble/color", "pebble/side")


def run(
    model: VisionLanguageModel,
    record: Path,
    data: tuple[str, ...] = DATA,
    limit: int = 2,
    **settings: Any,
) -> tuple[Profile, int, str]:
    tasks = load_tasks(data, split="validation", limit=limit)
    said = io.StringIO()
    found = calibrate(
        model, tasks, record, Progress(said, len(tasks)), **{"batch_size": 2, **settings}
    )
    return *found, said.getvalue()


def values(record: Path) -> list[float]:
    rows = map(json.loads, record.read_text().splitlines()[1:])
    return [value for row in rows for value in row["coupling"]]


def test_it_keeps_everything_and_measures() -> None:
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(size, 6, generator=generator) for size in (9, 5)]
    view = hand_made(states)
    choice = MeasureCoupling().choose(view)
    assert [each.tolist() for each in choice.kept] == [list(range(9)), list(range(5))]
    for sample, details in enumerate(choice.details):
        assert details["coupling"] == float(tc.coupling(states[sample], view.prompt[sample]))


@pytest.mark.parametrize(("after", "data"), [(1, DATA), (0, ("pebble/place",))])
def test_it_measures_what_mob_sees(
    pebble: VisionLanguageModel, tmp_path: Path, after: int, data: tuple[str, ...]
) -> None:
    profile, without, said = run(pebble, tmp_path / "r.jsonl", data, after=after)
    expected = []
    for task in load_tasks(data, split="validation", limit=2):
        method = tc.MoB(budget=8, after=after)
        with (
            torch.inference_mode(),
            tc.prune(pebble.model, method, processor=pebble.processor) as pruned,
        ):
            pebble.model(**pebble.make_inputs(list(task.examples())), logits_to_keep=1)
        expected += [trace.coupling for trace in pruned.trace]
    assert values(tmp_path / "r.jsonl") == expected
    assert (profile.model, profile.after, without) == ("pebble", after, 0)
    assert [(task.name, task.count) for task in profile.tasks] == [(name, 2) for name in data]
    assert f"{len(data)} of {len(data)} done" in said


def killed_at(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """The process dies when this batch is asked for."""
    measure, asked = calibration._measure_coupling, iter(range(100))

    def dies(*arguments: Any) -> Any:
        if next(asked) == batch:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(calibration, "_measure_coupling", dies)


def test_a_killed_run_goes_on(
    pebble: VisionLanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"limit": 1, "batch_size": 1}
    whole, _, _ = run(pebble, tmp_path / "whole.jsonl", **settings)
    parts = tmp_path / "parts.jsonl"
    with monkeypatch.context() as patched:
        killed_at(patched, 1)
        with pytest.raises(KeyboardInterrupt):
            run(pebble, parts, **settings)
    done = parts.read_bytes()
    assert len(done.splitlines()) == 2  # what all have in common, and one batch
    for tail in (b"", b'{"task": "pebble/si', b'{"task": 1}'):
        parts.write_bytes(done + tail)  # a line may have been cut off while it was written
        with monkeypatch.context() as patched:
            killed_at(patched, 1)  # one batch is missing: a second would be one done twice
            resumed, _, _ = run(pebble, parts, **settings)
        assert resumed == whole
        assert parts.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_record_of_another_run_is_refused(pebble: VisionLanguageModel, tmp_path: Path) -> None:
    record, data = tmp_path / "r.jsonl", ("pebble/color",)
    run(pebble, record, data)
    with pytest.raises(tc.InputError, match=r"settings.*'after': 1.*instead of.*'after': 0"):
        run(pebble, record, data, after=0)
    lines = record.read_text()
    record.write_text(lines.replace('"coupling": [', '"coupling": [7, '))
    with pytest.raises(ResultsError, match=r"damaged.*3 values for 2 samples.*delete it"):
        run(pebble, record, data)
    record.write_text("something else\n")
    with pytest.raises(ResultsError, match="not a record of calibrate"):
        run(pebble, record, data)


def test_impossible_settings_are_refused(pebble: VisionLanguageModel, tmp_path: Path) -> None:
    with pytest.raises(tc.InputError, match="got 0"):
        run(pebble, tmp_path / "r.jsonl", batch_size=0)
    with pytest.raises(tc.InputError, match="after=99 is out of range"):
        run(pebble, tmp_path / "r.jsonl", after=99)


def command(*arguments: str) -> None:
    call("calibrate", *arguments)


def test_the_command(
    pebble: VisionLanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evaluation, "load_model", lambda *_, **__: pebble)
    data = image_task(tmp_path / "mine.jsonl", examples=3)
    out = tmp_path / "found" / "profile.json"
    command("--tasks", str(data), "--limit", "2", "--out", str(out))
    printed = capsys.readouterr().out
    assert "NOT SEPARATED: there are 2 samples" in printed
    assert "mine" in printed
    profile = Profile.load(out)
    assert (profile.count, profile.tasks[0].name) == (2, "mine")
    assert len(values(out.parent / "profile.batches.jsonl")) == 2
    with pytest.raises(SystemExit) as end:
        command("--tasks", str(data), "--out", str(tmp_path))
    assert end.value.code == 2
    assert "is a folder, pass a file" in capsys.readouterr().err


def test_a_stopped_command_says_how_to_go_on(
    pebble: VisionLanguageModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(evaluation, "load_model", lambda *_, **__: pebble)
    killed_at(monkeypatch, 0)
    with pytest.raises(SystemExit) as stopped:
        command("--tasks", "pebble/color", "--limit", "1", "--out", str(tmp_path / "p.json"))
    assert stopped.value.code == 130
    assert "the same command resumes" in capsys.readouterr().err
    assert not (tmp_path / "p.json").exists()


def test_bars_show_every_bin_that_is_not_empty() -> None:
    assert draw_bars((0, 1, 50, 100)) == " ▁▄█"
    assert draw_bars((0, 0)) == "  "


def test_the_text_says_plainly_whether_there_are_two_groups() -> None:
    two = describe_profile(
        Profile.of("m", 1, {"a": two_heaps(200), "long name": one_heap(50, mean=1.3)})
    )
    assert "Two groups: " in two
    assert "tau = 1.3" in two
    one = describe_profile(Profile.of("m", 1, {"a": one_heap(200)}))
    assert "NOT SEPARATED: the density falls by" in one
    assert describe_profile(Profile.of("m", 1, {"a": [1.2] * 60})).endswith("without a prior.")
