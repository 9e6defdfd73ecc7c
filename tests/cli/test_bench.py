"""``tokencover bench``, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.calling import call
from tokencover.errors import InputError
from tokencover_models.pebble import PICTURE_CHECKPOINT as SHIPPED


def run(*arguments: str) -> None:
    call("bench", *arguments)


def test_a_model_from_a_folder_and_a_picture_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, numbers = tmp_path / "mine.png", tmp_path / "bench.json"
    Image.new("RGB", (300, 200), "navy").save(picture)
    run(
        "--model", str(SHIPPED), "--image", str(picture), "--question", "which place is this ?",
        "--batch-size", "2",
        "--methods", "mob:after=2", "--budgets", "0.5", "--repeats", "1", "--tokens-out", "2",
        "--out", str(numbers),
    )  # fmt: skip
    assert "mob:after=2" in capsys.readouterr().out
    found = json.loads(numbers.read_text())
    assert found["setting"]["visual_tokens"] == [576, 576]
    facts = found["rows"][0]["measured"]["facts"]
    assert facts["tokens_per_layer"][1] == [576, 576] + [288] * 9
    assert found["rows"][0]["gains"]["prefill"]["median"] > 0


def test_a_model_for_clips_is_shown_clips(tmp_path: Path) -> None:
    numbers = tmp_path / "bench.json"
    run(
        "--model", "pebble-clips", "--methods", "mob", "--budgets", "136", "--repeats", "1",
        "--tokens-out", "2", "--out", str(numbers),
    )  # fmt: skip
    found = json.loads(numbers.read_text())
    assert found["setting"]["visual_tokens"] == [1160]
    facts = found["rows"][0]["measured"]["facts"]
    assert facts["tokens_per_layer"][0] == [1160, *[136] * 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "magic"], "no method 'magic'; there are"),
        (["--methods", "mob:later=2"], "mob has no setting later"),
        (["--methods", "mob:after"], "'after' is not a setting"),
        (["--methods", "mob:budget=3"], "separate option"),
        (["--methods", "mob:after=99"], "after=99"),
        (["--model", "./no/such/folder"], "'./no/such/folder' cannot be loaded"),
        (["--budgets", "64,many"], "a count .64. or a fraction .0.111."),
        (["--budgets", "0"], "at least 1 token, got 0"),
        (["--dtype", "float3"], "torch has no dtype 'float3'"),
        (["--device", "nowhere"], "Cannot move the model to device 'nowhere'"),
        (["--image", "mine.png"], "--question"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run("--repeats", "1", *arguments)
