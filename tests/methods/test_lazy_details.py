"""Nothing for nothing: eta and the words of prompt centers are computed when they are read."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.methods.test_mob import choosable, states_before
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.budget import split
from tokencover.budget.split import CouplingSplit
from tokencover.methods import Details, FinalWipe, LazyValue, Method, NearestOnly, View, mob
from tokencover.pruning import Trace


class Calls:
    """Counts how often eta is measured and words are looked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_coupling = self.of_words = 0
        measure: Callable[..., Tensor] = tc.coupling
        find: Callable[..., Tensor] = mob._get_nearest_prompt_positions

        def count_coupling(*arguments: Tensor) -> Tensor:
            self.of_coupling += 1
            return measure(*arguments)

        def count_words(*arguments: Tensor) -> Tensor:
            self.of_words += 1
            return find(*arguments)

        monkeypatch.setattr(split, "coupling", count_coupling)
        monkeypatch.setattr(mob, "_get_nearest_prompt_positions", count_words)

    @property
    def both(self) -> tuple[int, int]:
        return self.of_coupling, self.of_words


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def some_view(**changes: Any) -> View:
    generator = torch.Generator().manual_seed(3)
    states = [torch.randn(size, 8, generator=generator) for size in (30, 17)]
    return hand_made(states, behind=4, **changes)


def traces_of(method: Method, kind: str = "ragged") -> list[Trace]:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs(kind)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    return run.trace


def test_what_is_not_read_is_not_computed(calls: Calls) -> None:
    for trace in traces_of(tc.MoB(6)):
        assert len(trace.kept) == 6
        assert len(trace.prompt_centers) + len(trace.visual_centers) == 6
        assert trace.split is not None
        assert "coupling" in trace.details
    assert calls.both == (0, 0)
    NearestOnly(6).choose(some_view())
    assert calls.both == (0, 0)


def test_lazy_value_computed_once(calls: Calls) -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("ragged")
    words, states = entry.user_words(inputs), states_before(entry, inputs, 1)
    traces = traces_of(tc.MoB(6))
    for number, trace in enumerate(traces, start=1):
        row = trace.sample
        patches = choosable(entry, inputs)[row]
        eta = float(tc.coupling(states[row, patches], states[row, words[row]]))
        assert trace.coupling == trace.details["coupling"] == trace.details.get("coupling") == eta
        assert dict(trace.details)["coupling"] == eta
        assert torch.equal(trace.center_prompt_positions, trace.details["center_prompt_positions"])
        assert calls.both == (number, number)


@pytest.mark.parametrize("per", ["prompt", "image"])
def test_coupling_known_after_measuring_rule(calls: Calls, per: Any) -> None:
    medium = torch.zeros(2, 30, dtype=torch.int64)
    medium[:, 9:] = 1
    view = some_view(medium=medium)
    parts = 2 if per == "prompt" else 4
    choice = tc.MoB(6, split=CouplingSplit(1.0), per=per).choose(view)
    assert calls.both == (parts, 0)
    lazily = tc.MoB(6, per=per).choose(view)
    measured = [details["coupling"] for details in choice.details]
    assert calls.both == (parts, 0)
    assert measured == [details["coupling"] for details in lazily.details]
    assert calls.both == (2 * parts, 0)


def test_the_wipe_carries_it_on_unread(calls: Calls) -> None:
    traces = traces_of(FinalWipe(tc.MoB(6), 3))
    assert calls.both == (0, 0)
    for trace, plain in zip(traces, traces_of(tc.MoB(6)), strict=True):
        assert trace.coupling == plain.coupling
        assert torch.equal(trace.center_prompt_positions, plain.center_prompt_positions)


def test_copies_and_pickles_have_the_values(calls: Calls) -> None:
    expected = [
        (trace.coupling, trace.center_prompt_positions.tolist()) for trace in traces_of(tc.MoB(6))
    ]
    fresh = [traces_of(tc.MoB(6)) for _ in range(2)]
    for found in (copy.deepcopy(fresh[0]), pickle.loads(pickle.dumps(fresh[1]))):
        before = calls.both
        assert [
            (trace.coupling, trace.center_prompt_positions.tolist()) for trace in found
        ] == expected
        assert calls.both == before


def test_lazy_details_hold_no_view() -> None:
    view = some_view()
    view.hidden_states.requires_grad_()
    whole = [weakref.ref(tensor) for tensor in (view.hidden_states, view.prompt)]
    (first, _) = tc.MoB(6).choose(view).details
    expected = float(tc.coupling(view.hidden_states[0], view.prompt[0]))
    del view
    gc.collect()
    assert [each() for each in whole] == [None, None]
    assert first["coupling"] == expected


def test_lazy_details_readable_outside_inference_mode() -> None:
    with torch.inference_mode():
        choice = tc.MoB(6).choose(some_view())
    plain = tc.MoB(6).choose(some_view())
    for told, expected in zip(choice.details, plain.details, strict=True):
        assert told["coupling"] == expected["coupling"]
        assert torch.equal(told["center_prompt_positions"], expected["center_prompt_positions"])


def test_empty_prompt_details_not_lazy(calls: Calls) -> None:
    silent = torch.zeros(2, 4, dtype=torch.bool)
    for told in tc.MoB(6).choose(some_view(prompt_mask=silent)).details:
        assert told["coupling"] is None
        assert told["center_prompt_positions"].tolist() == []
    assert calls.of_coupling == 0


def test_details_behave_like_plain_values() -> None:
    computed: list[int] = []

    def compute(value: int) -> int:
        computed.append(value)
        return value

    details = Details(a=1, b=LazyValue(compute, 2))
    assert set(details) == {"a", "b"}
    assert len(details) == 2
    carried = Details(details, c=3)
    assert "b" in carried
    assert not computed
    assert details.get("b") == details["b"] == 2
    assert details.get("c") is None
    assert list(details.items()) == [("a", 1), ("b", 2)]
    assert list(details.values()) == [1, 2]
    assert json.dumps(dict(details)) == '{"a": 1, "b": 2}'
    assert pickle.loads(pickle.dumps(details)) == {"a": 1, "b": 2}
    assert computed == [2]
    assert dict(carried) == {"a": 1, "b": 2, "c": 3}
    with pytest.raises(KeyError):
        details["c"]


def test_a_trace_can_be_printed() -> None:
    (trace,) = traces_of(tc.MoB(6), "single")
    assert f"'coupling': {trace.coupling}" in repr(trace.details)
    with patch.object(mob, "_get_nearest_prompt_positions", side_effect=AssertionError):
        assert trace.split == trace.details["split"]
