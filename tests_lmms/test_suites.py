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

import tokencover.evaluation
from tests_lmms.conftest import HOME
from tokencover.cli.app import main
from tokencover.evaluation import read_folder

QUICK = ("--timing-batches", "0", "--threads", "1", "--batch-size", "5")


LAUNCHERS = (
    ("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
    (
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
    ),
)


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}


def start(arguments: Sequence[str], *before: str) -> subprocess.Popen[str]:
    command = [sys.executable, *before, "-m", "tokencover", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ}
    )


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test fail in which a model is loaded."""

    def fail(*arguments: object, **settings: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(tokencover.evaluation, "load_model", fail)


def test_all_pictures_of_the_paper_with_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    arguments = ["evaluate", "--suite", "paper", "--methods", "mob", "--budgets", "64"]
    assert main([*arguments, *QUICK, "--out", str(out)]) == 0
    told = "skipped, since pebble takes no videos: TGIF, MSVD, MSRVTT, ActivityNet"
    assert told in capsys.readouterr().err
    stored = read_folder(out)
    assert list(stored.groups.values()).count("strong") == 4
    assert list(stored.groups.values()).count("weak") == 6
    assert [str(row.combination) for row in stored.rows] == ["unpruned", "mob 64"]
    settings = stored.run["settings"]["lmms"]
    assert (settings["prompt_words"], settings["pad"], settings["frames"]) == ("question", False, 8)
    assert settings["image_processor"]
    assert settings["repetition_penalty"] == 1.0
    for row in stored.rows:
        assert row.summary is not None
        assert row.summary.failed == 0
        tokens = 576 if row.combination.method is None else 64
        assert {each.tokens for records in row.records.values() for each in records} == {tokens}
    (pope,) = out.glob("scores-mob-64-POPE-*.json")
    content = json.loads(pope.read_text())
    assert content["overall"] == content["metrics"]["pope_f1_score"]
    _check_generation(out)
    _check_report(out, tmp_path)
    before = read_files(out)
    assert main([*arguments, *QUICK, "--out", str(out)]) == 0  # nothing is left to do
    assert read_files(out) == before
    assert main([*arguments, *QUICK, "--prompt-scope", "turn", "--out", str(out)]) == 2


def _check_generation(out: Path) -> None:
    """Each file says how answers were generated: lmms-eval's lengths, ours where it has none."""
    found = {}
    for path in out.glob("scores-unpruned-*.json"):
        content = json.loads(path.read_text())
        found[content["task"]] = content["generation"]
        length = content["generation"]["max_new_tokens"]
        assert f"greedy, up to {length} new tokens" in content["version"]
    assert {each["do_sample"] for each in found.values()} == {False}
    assert {task: each["max_new_tokens"] for task, each in found.items()} == {
        "MMB": 1024, "MMB-CN": 256, "SQA": 16, "VizWiz": 128, "GQA": 16, "MME": 16, "POPE": 128,
        "TextVQA": 128, "VQAv2": 16, "OCR": 128,
    }  # fmt: skip
    assert found["VizWiz"]["until"] == ["ASSISTANT:"]


def _check_report(out: Path, folder: Path) -> None:
    """Tables, intervals, LaTeX, images and the form to send work as for any other results."""
    page, table, sent = (folder / name for name in ("page.html", "table.tex", "sent.json"))
    arguments = ["report", str(out), "--out", str(page), "--latex", str(table)]
    assert main([*arguments, "--export", str(sent), "--images", "1"]) == 0
    assert "kept" in page.read_text()
    assert "\\begin{tabular}" in table.read_text()
    export = json.loads(sent.read_text())
    mme = export["tasks"]["MME"]
    assert mme["source"] == "lmms:mme"
    assert (mme["benchmark"]["paper"], mme["benchmark"]["split"]) == (1862, "test")
    assert "6 of 6 questions, greedy, up to 16 new tokens" in mme["about"]
    metrics = export["rows"][0]["tasks"]["MME"]["metrics"]
    assert set(metrics) == {"mme_perception_score", "mme_cognition_score"}


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
        (["--tasks", "lmms:coco2017_cap_val"], "coco2017_cap_val of lmms-eval needs the package"),
        (["--tasks", "lmms:vizwiz_vqa_test"], "answers that only a server scores"),
        (["--tasks", "lmms:POPE"], "lmms-eval has no task 'POPE'; it has pope"),
        (["--tasks", "lmms:vqav2"], "name those that you want, lmms:vqav2_val,lmms:vqav2_test"),
        (["--tasks", "lmms:activitynetqa"], "activitynetqa lets a judge score its answers"),
        (["--tasks", "lmms:seedbench"], "Could not load the dataset for seedbench"),
        (["--tasks", "lmms:gqa,lmms:tokencover_tgif_qa"], "cannot be evaluated on 'pebble'"),
    ],
)
def test_what_is_wrong_is_told_before_a_model_is_loaded(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_model: None,
) -> None:
    import tenacity

    monkeypatch.setattr(tenacity.nap.time, "sleep", lambda seconds: None)
    out = str(tmp_path / "results")
    is_failure = "Could not load the dataset" in said or "needs the package" in said
    assert main(["evaluate", *arguments, "--out", out]) == (1 if is_failure else 2)
    lines = [each for each in capsys.readouterr().err.splitlines() if "tokencover:" in each]
    assert len(lines) == 1
    assert said in lines[0]


def test_a_missing_login_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_model: None
) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert main(["evaluate", "--suite", "paper"]) == 1
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "tokencover:" in each]
    assert "with a Hugging Face login, and there is none: run `hf auth login`" in line
    assert "lmms-lab-encoder/GQA" in line


def test_a_missing_video_is_told(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    no_model: None,
) -> None:
    # Before seedbench, which is not here and would have to be downloaded.
    tasks = "lmms:seedbench,lmms:tokencover_msvd_qa"
    arguments = ["evaluate", "--model", "pebble-clips", "--tasks", tasks]
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
    one, killed = tmp_path / "one", tmp_path / "killed"
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

    for module, *options in LAUNCHERS:
        out = tmp_path / module
        both = start([*arguments, str(out)], "-m", module, *options)
        said, _ = both.communicate()
        assert both.returncode == 0, said
        assert "part 0 of 2" in said or "part 1 of 2" in said
        assert read_files(out) == expected


@pytest.mark.parametrize(
    ("command", "results"),
    [
        (["evaluate", "--methods", "mob,fastv", "--budgets", "64", "--timing-batches", "0"], "."),
        (["ablate", "--what", "fold", "--budgets", "32", "--values", "0.25,0.5"], "results"),
    ],
)
def test_parts_of_a_job_array_make_one_folder(
    command: list[str], results: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*command, "--tasks", "lmms:gqa", "--batch-size", "5", "--threads", "1", "--out"]
    one, parts = tmp_path / "one", tmp_path / "parts"
    assert main([*arguments, str(one)]) == 0
    table = capsys.readouterr().out.replace(str(one), "")
    assert main([*arguments, str(parts), "--shard", "1/2"]) == 0
    assert "part 1 of 2 is done, other parts are not" in capsys.readouterr().out
    assert main([*arguments, str(parts), "--shard", "0/2"]) == 0
    assert capsys.readouterr().out.replace(str(parts), "") == table  # the last one prints it
    assert read_files(parts / results) == read_files(one / results)


def test_the_command_line_of_lmms_eval(tmp_path: Path) -> None:
    settings = "pretrained=pebble,method=mob,budget=64"
    folder = subprocess.run(
        [sys.executable, "-m", "tokencover.lmms_manifest", "pebble"],
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
