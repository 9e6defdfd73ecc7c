"""``tokencover serve`` writes the command that vLLM is started with."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import call
from tokencover.errors import InputError, MissingPackageError
from tokencover.serving import ServingSettings, run_server
from tokencover_models.pebble import PICTURE_CHECKPOINT


def print_command(capsys: pytest.CaptureFixture[str], *options: object) -> list[str]:
    call("serve", "pebble", "--print", *options)
    return shlex.split(capsys.readouterr().out)


def read_overrides(command: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command[command.index("--hf-overrides") + 1])
    return found


def test_settings_become_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    command = print_command(capsys, "--budget", 0.25, "--method", "divprune", "--ceiling", 300)
    assert command[:3] == ["python", "-m", "vllm.entrypoints.openai.api_server"]
    assert command[3:5] == ["--model", str(PICTURE_CHECKPOINT)]
    overrides = read_overrides(command)
    assert overrides["architectures"] == ["TokenCoverLlavaForConditionalGeneration"]
    settings = ServingSettings.read(overrides["tokencover"])
    assert (settings.method.name, settings.method.budget, settings.ceiling) == (
        "divprune",
        0.25,
        300,
    )
    assert "--trust-request-mm-kwargs" in command  # or the ceiling would mean nothing
    assert "--trust-request-mm-kwargs" not in print_command(capsys)


def test_other_options_are_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--port", "8001", "--dtype=float32", "--hf-overrides", '{"a": 1}']
    command = print_command(capsys, "--by-request", *given)
    assert command[-3:] == ["--port", "8001", "--dtype=float32"]
    assert command.count("--hf-overrides") == 1
    assert read_overrides(command)["a"] == 1
    assert command.count("--trust-request-mm-kwargs") == 1
    assert not ServingSettings.read(read_overrides(command)["tokencover"]).other_request_settings
    trusting = print_command(capsys, "--trust-request-mm-kwargs")
    assert ServingSettings.read(read_overrides(trusting)["tokencover"]).other_request_settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "many"], "--budget must be"),
        (["--budget", "0"], "at least 1"),
        (["--method", "fastv"], "inside the decoder"),
        (["--split", "online"], "adapts"),
        (["--profile", "missing.json"], "missing.json"),
        (["--hf-overrides", "{"], "JSON object"),
        (["--hf-overrides", "[]"], "JSON object"),
        (["--model", "other"], "--model cannot be passed on"),
        (["--model=other"], "--model cannot be passed on"),
        (["--ceiling", "32"], "below budget=64"),
        (["--split", "coupling"], "tokencover calibrate --after 0"),
    ],
)
def test_what_cannot_be_served_is_told(options: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call("serve", "pebble", "--print", *options)


def test_a_model_that_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["GotOcr2ForConditionalGeneration"]}')
    with pytest.raises(InputError, match="architecture GotOcr2ForConditionalGeneration"):
        call("serve", tmp_path, "--print")
    with pytest.raises(InputError, match="Cannot read the model"):
        call("serve", tmp_path / "nothing", "--print")
    with pytest.raises(InputError, match="Pass the model before options of vLLM, got '--max-"):
        call("serve", "--max-model-len", "8")


def test_without_vllm_the_way_out_is_told() -> None:
    with pytest.raises(MissingPackageError, match=r"pip install 'tokencover\[vllm\] @ "):
        call("serve", "pebble")


def test_the_exit_code_is_the_servers_and_its_counters_have_a_folder() -> None:
    code = "import os, sys; sys.exit(3 + os.path.isdir(os.environ['PROMETHEUS_MULTIPROC_DIR']))"
    assert run_server([sys.executable, "-c", code]) == 4


def test_a_request_to_end_reaches_the_server() -> None:
    server = "import signal, sys, time; print('up', flush=True); time.sleep(60)"
    starter = textwrap.dedent(f"""
        import sys
        from tokencover.serving import run_server
        sys.exit(-run_server([sys.executable, "-c", {server!r}]))
    """)
    command = [sys.executable, "-c", starter]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == signal.SIGTERM
