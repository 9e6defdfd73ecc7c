"""Nothing is built for a method that does not ask for it, and nothing is found twice."""

from collections import Counter
from importlib import import_module
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.pruning.attention import reader
from tokencover.pruning.decoder.layers import LayerInputs
from tokencover.pruning.selection import VisualTokens

runs = import_module("tokencover.pruning.prune")  # the package has a function of this name

NOT_ASKED_FOR: tuple[tuple[Any, str], ...] = (
    (runs, "VisionMerger"),
    (runs, "VisionReader"),
    (runs, "build_recorders"),
    (LayerInputs, "_reindex"),
    (reader, "LayerAttention"),
    (reader, "Projections"),
    (reader, "get_past"),
)


def count_hooks(model: torch.nn.Module) -> Counter[str]:
    """Hooks by the name of the module that they are on."""
    return Counter(
        {
            name: len(module._forward_hooks) + len(module._forward_pre_hooks)
            for name, module in model.named_modules()
        }
    )


@pytest.mark.parametrize("method", [tc.MoB(4), KeepRandom(4, (0, 2))])
def test_what_a_method_does_not_ask_for_is_not_built(
    method: tc.Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("built for a method that never asked for it")

    for owner, name in NOT_ASKED_FOR:
        monkeypatch.setattr(owner, name, refuse)
    entry = ZOO["llava"]
    model, inputs = built("llava"), entry.inputs("single", "left")
    with torch.no_grad():
        model(**inputs)  # transformers puts hooks of its own on the vision encoder
        before = count_hooks(model)
        with tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
            model(**inputs)
            hooked = set(count_hooks(model) - before)
    assert run.trace
    # The multimodal model, the decoder and its layers; nothing inside these or the vision encoder.
    blocks = {f"model.language_model.layers.{number}" for number in range(5)}
    assert hooked == {"model", "model.language_model", *blocks}


@pytest.mark.parametrize("stages", [(1,), (0, 2), (1, 3)])
def test_visual_tokens_are_found_once_at_each_place(
    stages: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    find = VisualTokens.at.__func__  # type: ignore[attr-defined]

    def count(cls: type[VisualTokens], *args: Any, **kwargs: Any) -> VisualTokens:
        calls["at"] += 1
        found: VisualTokens = find(cls, *args, **kwargs)
        return found

    monkeypatch.setattr(VisualTokens, "at", classmethod(count))
    entry = ZOO["llava"]
    model, inputs = built("llava"), entry.inputs("single", "left")
    method = KeepRandom(4, stages)
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        model(**inputs)
    assert calls["at"] == len(stages)
