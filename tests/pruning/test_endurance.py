"""The soak benchmark, small."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import endurance
import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.methods import Method

NAMES = ("llava", "qwen2_vl")


@pytest.fixture(autouse=True)
def _frozen_again() -> Iterator[None]:
    """The benchmark thaws what tests/conftest.py has frozen, too."""
    yield
    gc.freeze()


@pytest.fixture(scope="module")
def cases() -> list[endurance.Case]:
    return endurance.make_cases(NAMES)


def test_methods_of_every_kind_take_part(cases: list[endurance.Case]) -> None:
    names = [case.method.name for case in cases if case.entry.name == "llava"]
    assert {"mob", "fastv", "sparsevlm", "visionzip", "tome", "dart"} <= set(names)
    assert len(cases) > 30


def test_every_family_of_the_zoo_takes_part() -> None:
    assert {name: endurance.list_kinds(entry)[:2] for name, entry in ZOO.items()} == {
        name: ["single", "ragged"] for name in ZOO
    }


def test_rounds(cases: list[endurance.Case]) -> None:
    line = endurance.soak(cases, 60)
    assert line.startswith(f"rounds: 60 over {len(cases)} pairs")


def test_what_is_left_on_a_model_is_found(cases: list[endurance.Case]) -> None:
    class Forgets(KeepRandom):
        def pruning_layers(self, num_layers: int) -> list[int]:
            model.forgotten = object()
            return [1]

    model: Any = cases[0].entry.build()
    case = replace(cases[0], model=model, method=Forgets(3))
    with pytest.raises(SystemExit, match="left on the model"):
        endurance.soak([case], 2)


def test_growing_memory_is_found(
    cases: list[endurance.Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    class Hoards(KeepRandom):
        def pruning_layers(self, num_layers: int) -> list[int]:
            held.append(1)
            return [1]

    # Told, not measured: what tests before this one gave back to the process may be used again.
    before = endurance.read_memory()
    monkeypatch.setattr(endurance, "read_memory", lambda: before + len(held))
    case = replace(cases[0], method=Hoards(3))
    with pytest.raises(SystemExit, match="grew too much"):
        endurance.soak([case], 40, bound=8)


def pick(cases: list[endurance.Case], *names: str) -> list[endurance.Case]:
    return [each for each in cases if each.entry.name == "llava" and each.method.name in names]


def test_threads_on_one_pruned_model(cases: list[endurance.Case]) -> None:
    few = pick(cases, "mob", "fastv", "visionzip", "tome")
    assert "8 threads" in endurance.share_a_model(few, 8, 1)


def test_threads_on_different_models() -> None:
    few: list[Method] = [tc.MoB(5), tc.FastV(5, after=1), tc.DART(5, positions="original")]
    own = []
    for name in ("llava", "qwen2_vl", "internvl", "qwen3_vl"):
        entry, model = ZOO[name], built(name)
        own += [endurance.Case(entry, model, each, entry.inputs("ragged")) for each in few]
    line = endurance.use_several_models(own, 4, 2)
    assert line.startswith("4 threads on different models")
    assert ": 24 rounds" in line
