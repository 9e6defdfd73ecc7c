from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration, LlavaProcessor

from tokencover.errors import InputError
from tokencover.pebble.loader import load_pebble
from tokencover.pebble.stages import FULL_PLAN, Plan, Stage
from tokencover.pebble.train import make_parser
from tokencover.pebble.training import Settings, rate_factor, train

TINY = Plan(
    (
        Stage("vision", "vision", 2, 1, vision_rate=1e-4),
        Stage("words", "words", 2, 1, rate=1e-4, visual_tokens=64),
        Stage("joint", "joint", 2, 1, rate=1e-4, vision_rate=1e-4, blind=0.5),
    ),
    kinds=("exist", "place", "color"),
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: w.detach() for name, w in load_pebble(folder)[0].named_parameters()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    train(Settings(out=out, seed=3, workers=1, plan=TINY))
    return out


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_ends_with_the_same_weights(whole: Path, tmp_path: Path, stop: int) -> None:
    train(Settings(out=tmp_path, seed=3, workers=1, plan=TINY, stop_after=stop))
    assert not (tmp_path / "checkpoint").exists()
    train(Settings(out=tmp_path, seed=3, workers=1, plan=TINY), resume=True)
    once, twice = weights(whole / "checkpoint"), weights(tmp_path / "checkpoint")
    assert once.keys() == twice.keys()
    assert all(torch.equal(once[name], twice[name]) for name in once)


def test_two_processes_train_too(tmp_path: Path) -> None:
    plan = Plan((Stage("joint", "joint", 1, 1, rate=1e-4, vision_rate=1e-4),), kinds=("place",))
    train(Settings(out=tmp_path, workers=2, plan=plan))
    assert (tmp_path / "checkpoint" / "model.safetensors").exists()
    assert [path.name for path in tmp_path.glob("meeting*")] == []


def test_the_result_loads_by_plain_transformers(whole: Path) -> None:
    folder = whole / "checkpoint"
    stock = LlavaForConditionalGeneration.from_pretrained(folder)
    ours, _ = load_pebble(folder)
    for name, weight in ours.named_parameters():
        assert torch.equal(weight, stock.get_parameter(name))
    auto: Any = AutoProcessor
    assert isinstance(auto.from_pretrained(folder), LlavaProcessor)


def test_a_finished_run_is_not_overwritten(whole: Path) -> None:
    with pytest.raises(InputError, match="--resume"):
        train(Settings(out=whole, seed=3, workers=1, plan=TINY))


def test_a_damaged_state_says_so(tmp_path: Path) -> None:
    (tmp_path / "state.pt").write_bytes(b"not a state")
    with pytest.raises(InputError, match="delete it"):
        train(Settings(out=tmp_path, workers=1, plan=TINY), resume=True)


def test_no_workers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workers"):
        train(Settings(out=tmp_path, workers=0, plan=TINY))


def test_the_rate_rises_and_falls() -> None:
    factors = [rate_factor(step, 100) for step in range(100)]
    assert factors[0] < factors[5] == max(factors) == 1
    assert factors[-1] < 0.05


def test_the_full_plan_trains_every_part() -> None:
    assert {stage.mode for stage in FULL_PLAN.stages} == {"vision", "words", "joint"}
    assert len(FULL_PLAN.as_json()["stages"]) == len(FULL_PLAN.stages)


def test_the_command_needs_a_folder() -> None:
    options = make_parser().parse_args(["--out", "x", "--seed", "2", "--resume"])
    assert (options.out, options.seed, options.resume) == (Path("x"), 2, True)
    with pytest.raises(SystemExit):
        make_parser().parse_args([])
