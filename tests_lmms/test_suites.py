"""The commands: suites, errors before the long work, interruption, several processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests_lmms.conftest import HOME
from tokencover.cli import main
from tokencover.evaluation import read_folder

QUICK = ("--timing-batches", "0", "--threads", "1", "--batch-size", "5")


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}


def start(arguments: Sequence[str], *before: str) -> subprocess.Popen[str]:
    command = [sys.executable, *before, "-m", "tokencover", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}
    )


def test_all_pictures_of_the_paper_with_one_command(tmp_path: Path) -> None:
    out = tmp_path / "results"
    arguments = ["evaluate", "--suite", "paper-images", "--methods", "mob", "--budgets", "64"]
    assert main([*arguments, *QUICK, "--out", str(out)]) == 0
    stored = read_folder(out)
    assert list(stored.groups.values()).count("strong") == 4
    assert list(stored.groups.values()).count("weak") == 6
    assert [str(row.combination) for row in stored.rows] == ["unpruned", "mob 64"]
    settings = stored.run["settings"]["lmms"]
    assert (settings["prompt_words"], settings["pad"], settings["frames"]) == ("question", False, 8)
    assert settings["image_processor"]
    for row in stored.rows:
        assert row.summary is not None
        assert row.summary.failed == 0
        tokens = 576 if row.combination.method is None else 64
        assert {each.tokens for records in row.records.values() for each in records} == {tokens}
    (pope,) = out.glob("scores-mob-64-POPE-*.json")
    content = json.loads(pope.read_text())
    assert content["overall"] == content["metrics"]["pope_f1_score"]
    before = read_files(out)
    assert main([*arguments, *QUICK, "--out", str(out)]) == 0  # nothing is left to do
    assert read_files(out) == before
    assert main([*arguments, *QUICK, "--prompt-words", "turn", "--out", str(out)]) == 1


def test_all_videos_of_the_paper_are_kept_for_a_judge(tmp_path: Path) -> None:
    out = tmp_path / "results"
    arguments = ["evaluate", "--model", "pebble-clips", "--suite", "paper-video"]
    assert main([*arguments, *QUICK, "--out", str(out)]) == 0
    assert set(read_folder(out).groups) == {"TGIF", "MSVD", "MSRVTT", "ActivityNet"}
    kept = json.loads((out / "questions" / "MSVD.json").read_text())["questions"]
    asked = json.loads((HOME / "GPT_Zero_Shot_QA/MSVD_Zero_Shot_QA/test_q.json").read_text())
    right = json.loads((HOME / "GPT_Zero_Shot_QA/MSVD_Zero_Shot_QA/test_a.json").read_text())
    pairs = zip(asked, right, strict=True)
    assert list(kept.values()) == [[q["question"], a["answer"]] for q, a in pairs]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tasks", "lmms:gqaa"], "lmms-eval has no task 'gqaa'; it has gqa"),
        (["--tasks", "lmms:activitynetqa"], "activitynetqa lets a judge score its answers"),
        (["--tasks", "lmms:seedbench"], "the data of seedbench cannot be had"),
        (["--suite", "paper-images", "--limit", "0"], "at least 1 example must be asked"),
    ],
)
def test_what_is_wrong_is_told_before_a_model_is_loaded(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tenacity

    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)
    out = str(tmp_path / "results")
    assert main(["evaluate", "--model", "no-such-model", *arguments, "--out", out]) == 1
    lines = [each for each in capsys.readouterr().err.splitlines() if "tokencover:" in each]
    assert len(lines) == 1
    assert said in lines[0]


def test_a_missing_login_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert main(["evaluate", "--model", "no-such-model", "--suite", "paper"]) == 1
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "tokencover:" in each]
    assert "with a Hugging Face login, and there is none: run `hf auth login`" in line
    assert "lmms-lab-encoder/GQA" in line


def test_a_missing_video_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ["evaluate", "--model", "no-such-model", "--tasks", "lmms:tokencover_msvd_qa"]
    monkeypatch.setenv("TOKENCOVER_VIDEO_QA", str(tmp_path))
    assert main(arguments) == 1
    assert "TOKENCOVER_VIDEO_QA" in capsys.readouterr().err
    folder = tmp_path / "MSVD_Zero_Shot_QA"
    folder.mkdir()
    for name in ("test_q.json", "test_a.json"):
        source = HOME / "GPT_Zero_Shot_QA" / "MSVD_Zero_Shot_QA" / name
        (folder / name).write_bytes(source.read_bytes())
    assert main(arguments) == 1
    assert "lacks the video of 5 of 5 questions" in capsys.readouterr().err


def test_interruption_and_two_processes_leave_the_files_of_one(tmp_path: Path) -> None:
    arguments = ["evaluate", "--tasks", "lmms:gqa,lmms:pope,lmms:mme", "--methods", "mob"]
    arguments += ["--budgets", "64", *QUICK, "--out"]
    one, killed, two = (tmp_path / name for name in ("one", "killed", "two"))
    assert main([*arguments, str(one)]) == 0
    expected = read_files(one)
    assert len(expected) == 7  # run.json, and two methods on three tasks

    running = start([*arguments, str(killed)])
    while not list(killed.glob("scores-*")) and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    left = read_files(killed)
    assert 2 <= len(left) < 7
    assert left.items() <= expected.items()
    assert main([*arguments, str(killed)]) == 0
    assert read_files(killed) == expected

    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    both = start([*arguments, str(two)], *launch)
    said, _ = both.communicate()
    assert both.returncode == 0, said
    assert read_files(two) == expected


def test_the_command_line_of_lmms_eval(tmp_path: Path) -> None:
    settings = "pretrained=pebble,method=mob,budget=64"
    folder = subprocess.run(
        [sys.executable, "-m", "tokencover.lmms_manifest"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    command = [sys.executable, "-m", "lmms_eval", "--model", "tokencover", "--model_args", settings]
    command += ["--tasks", "tokencover_pebble", "--include_path", folder, "--limit", "4"]
    command += ["--batch_size", "4", "--device", "cpu", "--output_path", str(tmp_path)]
    end = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(tmp_path.rglob("*_results.json"))
    assert len(found) == 1, end.stdout + end.stderr
    results = json.loads(found[0].read_text())["results"]["tokencover_pebble"]
    ours = ["evaluate", "--tasks", "lmms:tokencover_pebble", "--limit", "4", "--methods", "mob"]
    assert main([*ours, "--budgets", "64", *QUICK, "--out", str(tmp_path / "ours")]) == 0
    (scores,) = (tmp_path / "ours").glob("scores-mob-*.json")
    assert json.loads(scores.read_text())["metrics"]["exact"] == results["exact,none"]
