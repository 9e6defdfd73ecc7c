"""Start vLLM's server with our settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from tokencover.errors import InputError, MissingPackageError, get_install_command
from tokencover.serving.settings import SETTINGS_KEY, ServingSettings
from tokencover.serving.supported import get_served_model, validate_positions

SERVER: Final = "vllm.entrypoints.openai.api_server"
MODEL: Final = "--model"
OVERRIDES: Final = "--hf-overrides"
TRUST: Final = "--trust-request-mm-kwargs"
METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


def build_server_command(
    model: str,
    settings: Mapping[str, Any],
    *,
    by_request: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """Build the command that serves a model, a path or Hub ID, with pruning.

    `settings` are those of `ServingSettings.read`, `more` are options of vLLM. With `by_request`
    requests may name budget and method. vLLM must trust their settings for that; ours are then the
    only ones accepted, unless `more` trusts them anyway. Raises `InputError` if the model or the
    settings cannot be served.
    """
    document = dict(settings)
    if TRUST in more:
        document["other_request_settings"] = True
    served = get_served_model(read_architectures(model))
    validate_positions(served, ServingSettings.read(document).method.positions)
    if any(option.partition("=")[0] == MODEL for option in more):
        raise InputError(
            f"{MODEL} cannot be passed on: the model is the first argument, {model!r}."
        )
    given, rest = _split_overrides(more)
    overrides = {**given, "architectures": [served.name], SETTINGS_KEY: document}
    command = [sys.executable, "-m", SERVER, MODEL, model, OVERRIDES, json.dumps(overrides)]
    if by_request and TRUST not in rest:
        command.append(TRUST)
    return command + rest


def read_architectures(model: str) -> list[str]:
    """Return the architectures of a checkpoint."""
    from transformers import PreTrainedConfig

    try:
        config, _ = PreTrainedConfig.get_config_dict(model)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"Cannot read the model {model!r}: {reason}") from error
    return list(config.get("architectures") or ())


def _split_overrides(more: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the overrides given in addition to ours, and all other options."""
    rest, text, options = [], "{}", iter(more)
    for option in options:
        if option == OVERRIDES:
            text = next(options, "")
        elif option.startswith(f"{OVERRIDES}="):
            text = option.removeprefix(f"{OVERRIDES}=")
        else:
            rest.append(option)
    try:
        overrides = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{OVERRIDES} takes a JSON object, got {text!r}: {error}.") from error
    if not isinstance(overrides, dict):
        raise InputError(f"{OVERRIDES} takes a JSON object, got {text!r}.")
    return overrides, rest


def validate_vllm() -> None:
    """Raise an error if vLLM is not installed."""
    if find_spec("vllm") is None:
        raise MissingPackageError(
            f"vLLM is not installed: {get_install_command('tokencover[vllm]')}."
        )


def run_server(command: Sequence[str]) -> int:
    """Run a server until it ends, and return its exit code.

    The metrics of all its processes are combined in a temporary folder.
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
