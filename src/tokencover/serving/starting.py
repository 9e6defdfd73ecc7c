"""Starts vLLM's own server with our settings filled in."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from tokencover.errors import InputError, MissingPackageError
from tokencover.extras import get_install_command
from tokencover.serving.architectures import check_positions, find_served_model
from tokencover.serving.settings import SETTINGS_KEY, ServingSettings

SERVER: Final = "vllm.entrypoints.openai.api_server"
MODEL: Final = "--model"
OVERRIDES: Final = "--hf-overrides"
TRUST: Final = "--trust-request-mm-kwargs"
METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


def make_server_command(
    model: str,
    settings: Mapping[str, Any],
    *,
    by_request: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """The command that serves a model with pruning.

    Parameters
    ----------
    model : str
        A folder or a hub name.
    settings : Mapping
        Those of `ServingSettings.read`.
    by_request : bool
        Whether requests may name budget and method themselves. vLLM must trust their settings for
        that; ours are then the only ones it takes, unless `more` trusts them anyway.
    more : sequence of str
        Options of vLLM's own.

    Raises
    ------
    InputError
        If the model or the settings cannot be served.
    """
    document = dict(settings)
    if TRUST in more:
        document["other_request_settings"] = True
    served = find_served_model(read_architectures(model))
    check_positions(served, ServingSettings.read(document).method.positions)
    if any(option.partition("=")[0] == MODEL for option in more):
        raise InputError(f"{MODEL} is not passed on: the model is the first word, {model!r}.")
    others, rest = _take_overrides(more)
    overrides = {**others, "architectures": [served.name], SETTINGS_KEY: document}
    command = [sys.executable, "-m", SERVER, MODEL, model, OVERRIDES, json.dumps(overrides)]
    if by_request and TRUST not in rest:
        command.append(TRUST)
    return command + rest


def read_architectures(model: str) -> list[str]:
    """What a checkpoint says it is."""
    from transformers import PreTrainedConfig

    try:
        found, _ = PreTrainedConfig.get_config_dict(model)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"the model {model!r} cannot be read: {reason}") from error
    return list(found.get("architectures") or ())


def _take_overrides(more: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The overrides that were given beside ours, and all other options."""
    rest, text, left = [], "{}", iter(more)
    for option in left:
        if option == OVERRIDES:
            text = next(left, "")
        elif option.startswith(f"{OVERRIDES}="):
            text = option.removeprefix(f"{OVERRIDES}=")
        else:
            rest.append(option)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{OVERRIDES} takes a JSON object, got {text!r}: {error}.") from error
    if not isinstance(found, dict):
        raise InputError(f"{OVERRIDES} takes a JSON object, got {text!r}.")
    return found, rest


def check_vllm() -> None:
    """Refuse to start where there is no vLLM."""
    if find_spec("vllm") is None:
        raise MissingPackageError(
            f"vLLM is not installed: {get_install_command('tokencover[vllm]')}."
        )


def write_command(command: Sequence[str]) -> str:
    """A command as it can be typed."""
    return shlex.join(["python", *command[1:]])


def run_server(command: Sequence[str]) -> int:
    """Run a server until it ends; the exit code is its own.

    Counters of all its processes are put together in a folder that goes when it ends.
    """
    with tempfile.TemporaryDirectory(prefix="tokencover-metrics-") as folder:
        metrics = {METRICS_FOLDER: os.environ.get(METRICS_FOLDER, folder)}
        process = subprocess.Popen(command, env={**os.environ, **metrics})
        # Ctrl-C reaches the server by itself; other requests to end are passed on.
        before = [
            signal.signal(signal.SIGINT, signal.SIG_IGN),
            signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number)),
        ]
        try:
            return process.wait()
        finally:
            for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
                signal.signal(number, handler)
