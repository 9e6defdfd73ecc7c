"""Options that say how a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.calling import call
from tokencover.cli.options import ModelArguments
from tokencover.errors import InputError
from tokencover.loading import describe_loading, load


def test_only_what_was_given_is_passed_on() -> None:
    assert ModelArguments().parse_options() == {}
    more = '{"revision": "main"}'
    arguments = ModelArguments(quantization="4bit", attention="eager", model_options=more)
    assert arguments.parse_options() == {
        "quantization": "4bit",
        "attn_implementation": "eager",
        "revision": "main",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--model-options must be a JSON object, got '{'"),
        ("[1]", "--model-options must be a JSON object such as"),
        ('{"dtype": "float16"}', "--model-options contains 'dtype'. Pass it as --dtype instead"),
        ('{"attn_implementation": 1}', "Pass it as --attention instead"),
    ],
)
def test_wrong_model_options_are_rejected(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelArguments(model_options=text).parse_options()


def test_results_record_options_only_if_given(tmp_path: Path) -> None:
    command = ["evaluate", "--methods", "mob", "--budgets", "64", "--limit", "1"]
    command += ["--tasks", "pebble/place", "--timing-batches", "0"]
    models = []
    for folder, options in (("plain", []), ("eager", ["--attention", "eager"])):
        out = tmp_path / folder
        call(*command, "--out", str(out), *options)
        models.append(json.loads((out / "run.json").read_text(encoding="utf-8"))["model"])
    plain, eager = models
    assert set(plain) == {"name", "class", "dtype", "device", "weights"}
    assert eager == {**plain, "options": {"attn_implementation": "eager"}}


def test_access_tokens_are_not_recorded() -> None:
    model, _ = load("pebble")
    options = {"token": "secret", "revision": "main", "device_map": {"": "cpu"}}
    assert describe_loading(model, options) == {
        "options": {"revision": "main", "device_map": "{'': 'cpu'}"}
    }
    assert describe_loading(model, {}) == {}


def test_bench_records_options_only_if_given(tmp_path: Path) -> None:
    command = ["bench", "--methods", "mob", "--budgets", "64", "--repeats", "1"]
    settings = []
    for options in ([], ["--attention", "eager"]):
        out = tmp_path / "numbers.json"
        call(*command, "--tokens-out", "1", "--out", str(out), *options)
        settings.append(json.loads(out.read_text(encoding="utf-8"))["setting"])
    assert "loading" not in settings[0]
    assert settings[1].pop("loading") == {"options": {"attn_implementation": "eager"}}
    assert settings[1].keys() == settings[0].keys()
