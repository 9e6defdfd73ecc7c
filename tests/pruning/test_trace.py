"""Traces as people and programs read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.zoo import ZOO
from tokencover.errors import TokenCoverError
from tokencover.pruning import Run


@pytest.fixture(scope="module")
def run() -> Run:
    entry = ZOO["llava"]
    model, inputs = entry.build(), entry.inputs("ragged")
    ask: Any = model.generate
    with (
        torch.inference_mode(),
        tc.prune(model, tc.MoB(6), prompt=entry.user_words(inputs)) as found,
    ):
        ask(**inputs, max_new_tokens=1)
    return found


def test_a_trace_becomes_plain_values(run: Run) -> None:
    trace = run.trace[1]
    found = json.loads(json.dumps(trace.to_dict()))
    assert found["sample"] == 1
    assert found["kept"] == trace.kept.tolist()
    assert found["coupling"] == trace.coupling
    assert found["prompt_centers"] == trace.prompt_centers.tolist()
    assert found["views"] == [
        {"medium": medium, "frame": frame, "rows": rows, "columns": columns}
        for (medium, frame), (rows, columns) in trace.grids.items()
    ]
    for place, token in enumerate(found["kept"]):
        where = [found[name][place] for name in ("medium", "frame", "row", "column")]
        assert where == trace.grid_locations[token].tolist()
    (split,) = found["split"]
    assert split["prompt_budget"] + split["visual_budget"] == 6


def test_a_trace_is_told_in_a_line(run: Run) -> None:
    trace = run.trace[0]
    assert repr(trace).startswith(f"Trace(sample 0: 6 of {trace.visual_tokens} visual tokens kept")
    assert "\n" not in repr(trace)


def test_a_notebook_shows_what_was_kept(run: Run) -> None:
    page = run.trace[0]._repr_html_()
    assert page.count("<rect") == 6
    assert page.count("#ff8c00") == len(run.trace[0].prompt_centers)
    assert page.count("#0078ff") == len(run.trace[0].visual_centers)
    assert run._repr_html_().count("<rect") == 18
    assert "&lt;" not in page


def test_before_anything_ran_that_is_said() -> None:
    with tc.prune(ZOO["llava"].build(), tc.MoB(6)) as run:
        with pytest.raises(TokenCoverError, match=r"nothing was pruned yet: call the model"):
            _ = run.trace[0]
        with pytest.raises(IndexError):
            _ = run.trace[-1]
        assert list(run.trace) == run.trace[:] == []
        assert "nothing yet" in run._repr_html_()


def test_a_cover_is_told_in_a_line() -> None:
    torch.manual_seed(0)
    cover = tc.mob(torch.randn(9, 4), torch.randn(2, 4), budget=4, prompt_budget=2, fold=2)
    assert isinstance(cover, tc.Cover)
    assert repr(cover) == "Cover(2 prompt + 2 visual centers)"
    numbers = ", ".join(map(str, cover.visual_centers.tolist()))
    assert f">{numbers}</td>" in cover._repr_html_()
