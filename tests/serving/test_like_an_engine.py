r"""Short prompts in chunks, with our choices and positions, give what `tc.prune` gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.serving.small_engine import serve
from tests.zoo import ZOO
from tokencover.serving.supported import SERVED, SERVED_MODELS, ServedModel, build_served_method

BUDGET = 5
ZOO_NAMES = ("llava", "llava_next", "qwen2_vl", "qwen2_5_vl")
MODELS = [
    pytest.param(name, served, id=name)
    for name, served in zip(ZOO_NAMES, SERVED_MODELS, strict=False)
]
ONE_POOL = {"per": "image"}


def compare(name: str, served: ServedModel, method: Any, kind: str, chunk: int) -> None:
    entry = ZOO[name]
    inputs = entry.collate(entry.samples(kind)[:1])
    ours = serve(entry, served, inputs, method, chunk)
    model = entry.build()
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        theirs = model(**inputs).logits[0, -1]
    assert ours.kept == run.trace[0].kept.tolist()
    torch.testing.assert_close(ours.logits, theirs, atol=2e-5, rtol=2e-4)


@pytest.mark.parametrize(("name", "served"), MODELS)
@pytest.mark.parametrize(("kind", "chunk"), [("single", 1000), ("two_images", 4)])
def test_mob(name: str, served: ServedModel, kind: str, chunk: int) -> None:
    compare(name, served, build_served_method("mob", budget=BUDGET), kind, chunk)


@pytest.mark.parametrize("named", [each for each in SERVED if each != "mob"])
def test_other_methods_on_one_picture(named: str) -> None:
    method = build_served_method(named, budget=0.3)
    compare("llava_next", SERVED_MODELS[1], method, "single", 7)


def test_numbered_anew() -> None:
    method = build_served_method("mob", budget=BUDGET, positions="reindex")
    compare("llava", SERVED_MODELS[0], method, "two_images", 6)


@pytest.mark.parametrize(("name", "served"), MODELS)
def test_a_budget_above_all_tokens_changes_nothing(name: str, served: ServedModel) -> None:
    entry = ZOO[name]
    inputs = entry.collate(entry.samples("two_images")[:1])
    ours = serve(entry, served, inputs, build_served_method("mob", budget=10_000), 9)
    with torch.no_grad():
        theirs = entry.build()(**inputs).logits[0, -1]
    torch.testing.assert_close(ours.logits, theirs, atol=2e-5, rtol=2e-4)


def test_wrong_positions_would_show() -> None:
    """The control: with places left out, the same tokens give other logits."""
    entry, served = ZOO["qwen2_vl"], SERVED_MODELS[2]
    inputs = entry.collate(entry.samples("single"))
    kept = build_served_method("mob", budget=BUDGET)
    right = serve(entry, served, inputs, kept, 1000).logits
    anew = build_served_method("mob", budget=BUDGET, positions="reindex")
    wrong = serve(entry, served, inputs, anew, 1000).logits
    assert (right - wrong).abs().max() > 1e-3
