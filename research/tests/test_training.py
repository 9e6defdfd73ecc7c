from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration, LlavaProcessor

from research.pebble_training import (
    CLIP_SCHEDULE,
    LOOKUP_SCHEDULE,
    PICTURE_SCHEDULE,
    ClipLearner,
    LookupLearner,
    PebbleTrainingSettings,
    PictureLearner,
    Schedule,
    Stage,
    recipes,
    run_training,
    train,
)
from research.pebble_training.__main__ import make_parser
from research.pebble_training.loop import scale_rate
from tokencover.errors import InputError
from tokencover_models.pebble.model import load_picture_checkpoint

EXTRA = ("exist", "more", "side", "level")
TINY = Schedule(
    (
        Stage("vision", "vision", 2, 1, vision_rate=1e-4),
        Stage("words", "words", 2, 1, rate=1e-4, visual_tokens=64),
        Stage("joint", "joint", 2, 1, rate=1e-4, vision_rate=1e-4, blind=0.5),
    ),
    kinds=("exist", "place", "color"),
    extra=EXTRA,
)


LEARNER = LookupLearner()
Runs = list[tuple[PebbleTrainingSettings, bool]]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: w.detach() for name, w in load_picture_checkpoint(folder)[0].named_parameters()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    train(PebbleTrainingSettings(out=out, seed=3, workers=1, schedule=TINY, learner=LEARNER))
    return out


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_ends_with_the_same_weights(whole: Path, tmp_path: Path, stop: int) -> None:
    train(
        PebbleTrainingSettings(
            out=tmp_path, seed=3, workers=1, schedule=TINY, learner=LEARNER, stop_after=stop
        )
    )
    assert not (tmp_path / "checkpoint").exists()
    train(
        PebbleTrainingSettings(out=tmp_path, seed=3, workers=1, schedule=TINY, learner=LEARNER),
        resume=True,
    )
    once, twice = weights(whole / "checkpoint"), weights(tmp_path / "checkpoint")
    assert once.keys() == twice.keys()
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_two_processes_train_too(tmp_path: Path) -> None:
    stage = Stage("joint", "joint", 1, 1, rate=1e-4, vision_rate=1e-4)
    schedule = Schedule((stage,), kinds=("place",), extra=EXTRA)
    train(PebbleTrainingSettings(out=tmp_path, workers=2, schedule=schedule, learner=LEARNER))
    assert (tmp_path / "checkpoint" / "model.safetensors").exists()
    assert [path.name for path in tmp_path.glob("meeting*")] == []


def test_the_result_loads_by_plain_transformers(whole: Path) -> None:
    folder = whole / "checkpoint"
    stock = LlavaForConditionalGeneration.from_pretrained(folder)
    ours, _ = load_picture_checkpoint(folder)
    for name, weight in ours.named_parameters():
        assert torch.equal(weight, stock.get_parameter(name))
    auto: Any = AutoProcessor
    assert isinstance(auto.from_pretrained(folder), LlavaProcessor)


def test_a_finished_run_is_not_overwritten(whole: Path) -> None:
    with pytest.raises(InputError, match="--resume"):
        train(PebbleTrainingSettings(out=whole, seed=3, workers=1, schedule=TINY, learner=LEARNER))


def test_a_damaged_state_says_so(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"not a state")
    with pytest.raises(InputError, match="delete it"):
        train(
            PebbleTrainingSettings(out=tmp_path, workers=1, schedule=TINY, learner=LEARNER),
            resume=True,
        )


def test_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers"):
        train(PebbleTrainingSettings(out=tmp_path, workers=0, schedule=TINY, learner=LEARNER))


def test_the_rate_rises_and_falls() -> None:
    factors = [scale_rate(step, 100) for step in range(100)]
    assert factors[0] < factors[5] == max(factors) == 1
    assert factors[-1] < 0.05


def test_the_full_schedules_train_every_part() -> None:
    assert {stage.mode for stage in LOOKUP_SCHEDULE.stages} == {"vision", "words", "joint"}
    assert {stage.mode for stage in PICTURE_SCHEDULE.stages} == {"vision", "joint"}
    assert len(PICTURE_SCHEDULE.as_json()["stages"]) == len(PICTURE_SCHEDULE.stages)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What would have been trained; look-up models are left as they start."""
    asked: Runs = []

    def note(settings: PebbleTrainingSettings, resume: bool) -> None:
        asked.append((settings, resume))
        if settings.learner == LEARNER:
            LEARNER.save(LEARNER.start(settings.seed), settings.out / "checkpoint")

    monkeypatch.setattr(recipes, "train", note)
    return asked


def test_one_call_trains_the_model_for_pictures(runs: Runs, tmp_path: Path) -> None:
    run_training(tmp_path, seed=4, workers=1, resume=True)
    expected = PebbleTrainingSettings(tmp_path, 4, 1, PICTURE_SCHEDULE, PictureLearner())
    assert runs == [(expected, True)]
    with pytest.raises(InputError, match=r"--start somewhere is of no use.*`--clips`"):
        run_training(tmp_path, start="somewhere")


def test_one_call_trains_a_look_up_model_and_from_it_the_one_for_clips(
    runs: Runs, tmp_path: Path
) -> None:
    run_training(tmp_path, clips=True, seed=4, workers=1)
    first, learned = tmp_path / "start", ClipLearner(tmp_path / "start" / "checkpoint")
    assert runs == [
        (PebbleTrainingSettings(first, 4, 1, LOOKUP_SCHEDULE, LEARNER), False),
        (PebbleTrainingSettings(tmp_path, 4, 1, CLIP_SCHEDULE, learned), False),
    ]
    other = tmp_path / "other"
    run_training(other, clips=True, start=first / "checkpoint", resume=True)
    assert runs[2:] == [(PebbleTrainingSettings(other, 0, 2, CLIP_SCHEDULE, learned), True)]


def test_clips_refuse_before_an_hour_is_spent(runs: Runs, tmp_path: Path) -> None:
    PictureLearner().save(PictureLearner().start(0), tmp_path / "deep")
    with pytest.raises(InputError, match=r"11 decoder layers.*one with 6; leave --start out"):
        run_training(tmp_path / "out", clips=True, start=tmp_path / "deep")
    with pytest.raises(InputError, match=r"nothing holds no checkpoint.*leave --start out"):
        run_training(tmp_path / "out", clips=True, start=tmp_path / "nothing")
    (tmp_path / "state.pt").touch()
    with pytest.raises(InputError, match="pass --resume"):
        run_training(tmp_path, clips=True)
    with pytest.raises(InputError, match="began from a --start; pass it again"):
        run_training(tmp_path, clips=True, resume=True)
    assert runs == []


def test_the_command_needs_a_folder() -> None:
    options = make_parser().parse_args(["--out", "x", "--seed", "2", "--resume"])
    assert (options.out, options.seed, options.resume) == (Path("x"), 2, True)
    with pytest.raises(SystemExit):
        make_parser().parse_args([])
