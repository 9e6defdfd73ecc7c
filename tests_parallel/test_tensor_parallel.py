"""Two processes that share a model select, compute and say the same as one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.zoo import ZOO
from tests_parallel.two_ranks import (
    build,
    launch,
    list_cases,
    observe,
    observe_all,
    observe_few,
)
from tokencover.errors import InputError
from tokencover.pruning.tensor_parallel import get_tensor_parallel_group

FAMILIES = ("llava", "qwen2_5_vl", "gemma3")
"""Plain positions, M-RoPE, and masks in both directions."""
CLOSE: dict[str, Any] = {"atol": 1e-4, "rtol": 1e-4}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    torch.testing.assert_close(found.pop("logits"), expected["logits"], **CLOSE)
    for name, value in found.items():
        assert len(value) == len(expected[name])
        pairs = zip(value, expected[name], strict=True)
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in pairs), name


@pytest.mark.parametrize("name", FAMILIES)
def test_tensor_parallel_equals_one_process(name: str, tmp_path: Path) -> None:
    ranks = launch("tensors", name, tmp_path)
    expected = observe_all(build(name), name)
    assert len(list_cases(name)) >= 15
    for found in ranks:
        assert found.keys() == expected.keys()
        torch.testing.assert_close(found.pop("unpruned"), expected["unpruned"], **CLOSE)
        for method, seen in found.items():
            assert_same(seen, expected[method])


def test_fully_sharded_layers_equal_one_process(tmp_path: Path) -> None:
    for found in launch("layers", "llava", tmp_path):
        expected = observe_all(build("llava"), "llava")
        torch.testing.assert_close(found.pop("unpruned"), expected["unpruned"], **CLOSE)
        for method, seen in found.items():
            assert_same(seen, expected[method])


@pytest.mark.parametrize(("task", "name"), [("experts", "aria"), ("copies", "llava")])
def test_experts_and_copies_equal_one_process(task: str, name: str, tmp_path: Path) -> None:
    expected = observe_few(build(name), name)
    for found in launch(task, name, tmp_path):
        for method, seen in found.items():
            assert_same(seen, expected[method])


def test_ranks_that_disagree_raise_on_every_rank(tmp_path: Path) -> None:
    first, second = launch("errors", "llava", tmp_path)
    assert "selected different tokens on the 2 ranks" in first["DrawOnEachRank"]
    assert first["DrawOnEachRank"] == second["DrawOnEachRank"]
    assert "selected different tokens on the 2 ranks" in first["MergeOnEachRank"]
    assert first["MergeOnEachRank"] == second["MergeOnEachRank"]
    assert "failed on rank 1 of 2" in first["FailOnOneRank"]
    assert "no memory left" in second["FailOnOneRank"]
    assert first["KeepRandom"]
    assert second["KeepRandom"]


def test_split_vision_encoder_is_rejected_by_methods_that_read_it(tmp_path: Path) -> None:
    for found in launch("vision", "llava", tmp_path):
        assert_same(found["mob"], observe(build("llava"), tc.MoB(7), ZOO["llava"], "ragged"))
        assert "vision encoder is split" in found["VisionZip"]
        assert "vision encoder is split" in found["ToMe"]


def test_pipeline_stages_are_rejected() -> None:
    model = build("llava")
    sizes = torch.zeros(2, 1, 1)
    model._device_mesh = SimpleNamespace(mesh_dim_names=("pp", "fsdp", "tp"), mesh=sizes, ndim=3)  # type: ignore[assignment]
    with pytest.raises(InputError, match="2 pipeline stages"):
        tc.prune(model, tc.MoB(7))
    model._device_mesh = None
    assert get_tensor_parallel_group(model) is None


def test_heads_of_unknown_ranks_are_rejected() -> None:
    """A projection that computes some heads, on a model that does not say who has the rest."""
    model: Any = build("llava")
    layer = model.model.language_model.layers[1].self_attn
    layer.q_proj.out_features *= 3
    inputs = ZOO["llava"].inputs("single")
    with (
        tc.prune(model, tc.FastV(7, after=2), prompt=ZOO["llava"].user_words(inputs)),
        pytest.raises(InputError, match=r"has 12 heads, but 4 of them are known"),
    ):
        model(**inputs)
