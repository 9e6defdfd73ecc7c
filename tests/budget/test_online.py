"""The threshold that is learned in use: it converges, restarts on drift, and can be stored."""

from __future__ import annotations

import copy
import json
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.budget.coupling_streams import SPREAD, one_heap, two_heaps
from tokencover.budget.online import OnlineThreshold
from tokencover.budget.threshold import split_groups


def feed(values: list[float], warm_up: int = 100, memory: int = 1000) -> OnlineThreshold:
    learner = OnlineThreshold(warm_up, memory)
    for value in values:
        learner.observe(value)
    return learner


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_it_converges_to_the_offline_threshold(share: float) -> None:
    values = two_heaps(1500, share=share, seed=5)
    offline = split_groups(values)
    learner = feed(values)
    assert learner.threshold == pytest.approx(offline.tau, abs=SPREAD / 4)
    assert learner.restarts == 0
    groups = learner.groups
    assert groups is not None
    assert groups.lower_fraction == pytest.approx(share, abs=0.05)


def test_there_is_no_threshold_during_warm_up() -> None:
    learner, values = OnlineThreshold(warm_up=60, memory=300), two_heaps(61)
    assert [learner.observe(value) for value in values[:60]] == [None] * 60
    assert learner.observe(values[60]) is not None


def test_there_is_none_without_two_groups() -> None:
    learner = OnlineThreshold(100, 1000)
    assert all(learner.observe(value) is None for value in one_heap(800))
    assert learner.restarts == 0


def test_shifted_single_group_stays_unseparated() -> None:
    learner = OnlineThreshold(100, 1000)
    values = one_heap(600, mean=1.2) + one_heap(600, mean=1.45, seed=1)
    assert [learner.observe(value) for value in values] == [None] * len(values)
    assert learner.restarts >= 1


def test_it_follows_groups_that_jump() -> None:
    learner = feed(two_heaps(600) + two_heaps(800, low=1.55, high=1.70, seed=1))
    assert learner.restarts >= 1
    assert learner.threshold == pytest.approx(1.625, abs=SPREAD)


def test_it_follows_groups_that_drift() -> None:
    lot, learner = random.Random(3), OnlineThreshold(100, 300)
    judged, wrong, steps = 0, 0, 2000
    for step in range(steps):
        low = lot.random() < 0.5
        value = lot.gauss(1.0 if low else 1.15, SPREAD) + 0.15 * step / steps
        tau = learner.observe(value)
        judged += tau is not None
        wrong += tau is not None and (value <= tau) != low
    assert judged > steps / 2
    assert wrong < judged / 100


def test_old_samples_are_forgotten() -> None:
    learner = feed(two_heaps(300) + one_heap(800, mean=1.30, seed=2), 100, 200)
    assert learner.threshold is None


@pytest.mark.parametrize("cut", [40, 130, 250])
def test_a_restored_state_continues_identically(tmp_path: Path, cut: int) -> None:
    values = two_heaps(150) + two_heaps(150, low=1.5, high=1.65, seed=1)
    whole = OnlineThreshold(60, 200)
    answers = [whole.observe(value) for value in values]
    assert whole.restarts == 1
    assert any(answers)
    first = feed(values[:cut], 60, 200)
    first.save(tmp_path / "state.json")
    loaded = OnlineThreshold.load(tmp_path / "state.json")
    restored = OnlineThreshold(60, 200)
    restored.restore(json.loads(json.dumps(first.state())))
    for learner in (loaded, restored, copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert [learner.observe(value) for value in values[cut:]] == answers[cut:]
        assert learner.state() == whole.state()
    assert first.state() != whole.state()


def test_memory_is_bounded() -> None:
    lot = random.Random(0)
    learner = feed([lot.uniform(0, 2) for _ in range(600)], 50, 50)
    assert len(learner.state()["long"]) < 50 * 5  # weights above 1 % are at most 4.6 memories old


def test_threads_lose_no_sample() -> None:
    learner = OnlineThreshold(100, 100_000)
    values = two_heaps(200)

    def work() -> None:
        for value in values:
            learner.observe(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learner.seen == 800
    total = sum(weight for _, weight in learner.state()["long"])
    keep = 1 - 1 / 100_000
    assert total == pytest.approx((1 - keep**800) / (1 - keep))
    assert learner.threshold == pytest.approx(1.375, abs=SPREAD)


def test_inference_mode_leaves_no_mark() -> None:
    values = two_heaps(300)
    with torch.inference_mode():
        learner = feed(values[:150])
    for value in values[150:]:
        learner.observe(value)
    assert learner.state() == feed(values).state()


@pytest.mark.parametrize("value", [float("nan"), -0.1, 2.1, float("inf")])
def test_invalid_coupling_raises(value: float) -> None:
    learner = OnlineThreshold()
    with pytest.raises(tc.InputError, match="between 0 and 2"):
        learner.observe(value)
    assert learner.seen == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up": 10}, "warm_up must be an integer of at least 50.*got 10"),
        ({"warm_up": 200, "memory": 100}, "memory must be an integer of at least 200.*got 100"),
        ({"warm_up": 60.0}, "got 60.0"),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        OnlineThreshold(**settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "is not a tokencover online coupling"),
        ({"version": 0}, "of version 0"),
        ({"memory": 999}, "memory=999"),
        ({"long": [[-1, 1.0]]}, "damaged.*no bin -1"),
        ({"recent": None}, "damaged"),
    ],
)
def test_restore_foreign_state_raises(change: dict[str, Any], message: str) -> None:
    learner = feed(two_heaps(120))
    before = learner.state()
    with pytest.raises(tc.InputError, match=message):
        learner.restore({**before, **change})
    assert learner.state() == before


def test_load_missing_or_damaged_file_raises(tmp_path: Path) -> None:
    with pytest.raises(tc.InputError, match="there is no"):
        OnlineThreshold.load(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(tc.InputError, match="cannot be read as JSON"):
        OnlineThreshold.load(tmp_path / "broken.json")
