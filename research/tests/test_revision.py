"""What a model does not know at the end is taught once more, and only then."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlavaForConditionalGeneration

from research.pebble_training import (
    PICTURE_SCHEDULE,
    PebbleTrainingSettings,
    PictureLearner,
    Schedule,
    Stage,
    train,
)
from research.pebble_training.lessons import draw_lesson
from research.pebble_training.revision import list_unknown
from tokencover_models.pebble import load_pebble

LEARNER = PictureLearner()
LAST = Stage("last", "joint", 1, 1, rate=1e-4, visual_tokens=24)
FEW = Stage("again few", "joint", 2, 1, rate=1e-4, visual_tokens=6, things=6, revised=3)
SHORT = Schedule((LAST,), kinds=("exist", "color"), again=(FEW, replace(LAST, name="again last")))


@pytest.fixture(autouse=True)
def _few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.pebble_training.revision.EXAMINED", 4)


def test_the_bundled_model_knows_all_kinds_and_a_blind_one_does_not() -> None:
    model, _ = load_pebble()
    helpers = LEARNER.make_helpers(1)
    assert list_unknown(LEARNER, model, helpers, PICTURE_SCHEDULE) == ()
    with torch.no_grad():
        model.model.multi_modal_projector.linear_2.weight.zero_()
    unknown = list_unknown(LEARNER, model, helpers, PICTURE_SCHEDULE)
    assert {"color", "read", "where", "animal_name"} <= set(unknown)


def test_stages_that_revise_ask_what_is_not_known_and_nothing_else() -> None:
    asked = draw_lesson(SHORT, FEW, (1,), 0, ("exist", "more")).kinds
    assert asked == ("exist", "more", "exist")
    assert draw_lesson(SHORT, LAST, (1,), 0, ("exist",)).kinds == SHORT.kinds


def run(out: Path, stop_after: int | None = None) -> list[str]:
    """Train; the stages that were run, one name a step."""
    train(PebbleTrainingSettings(out, 3, 1, SHORT, LEARNER, stop_after), resume=out.exists())
    lines = (out / "log.jsonl").read_text().splitlines()
    return [json.loads(line)["stage"] for line in lines]


@pytest.fixture(autouse=True)
def _report_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.pebble_training.loop.REPORT_EVERY", 1)


def test_what_is_known_is_not_taught_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.pebble_training.revision.KNOWN", 0.0)
    assert run(tmp_path / "run") == ["last"]
    assert (tmp_path / "run" / "checkpoint").is_dir()


def test_a_revision_that_was_stopped_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = ["last", "again few", "again few", "again last"]
    assert run(tmp_path / "whole") == stages
    assert "not known yet: exist, color" in capsys.readouterr().out
    assert run(tmp_path / "parts", stop_after=1) == stages[:1]
    assert run(tmp_path / "parts", stop_after=2) == stages[:2]
    assert run(tmp_path / "parts") == stages
    once, twice = (
        LlavaForConditionalGeneration.from_pretrained(tmp_path / name / "checkpoint")
        for name in ("whole", "parts")
    )
    for name, weight in once.named_parameters():
        assert torch.equal(weight, twice.get_parameter(name)), name
