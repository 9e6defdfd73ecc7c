"""What the accelerator's path asks of a device: kernels, bytes, host reads, memory."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

import tokencover as tc
from accelerator import Row, count_on_shapes
from kernel_counter import Tally, count_kernels
from tests.covering.together.on_accelerator import pretend_accelerator
from tokencover.covering import mob_batch
from tokencover.covering.together import keep_float32
from tokencover.covering.together import visual_centers as centers


def draw(batch: int, tokens: int, kind: str = "plain") -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    visual, prompt = (torch.randn(batch, count, 48, generator=generator) for count in (tokens, 8))
    if kind == "copies":
        visual = visual[:, :20].repeat(1, tokens // 20, 1)
    return visual, prompt


def count(batch: int, tokens: int, budget: int, kind: str = "plain") -> Tally:
    visual, prompt = draw(batch, tokens, kind)
    with pretend_accelerator(), count_kernels() as tally:
        mob_batch(visual, prompt, budget=budget, prompt_budget=budget // 2, fold=20)
    return tally


def test_center_takes_three_kernels_per_batch() -> None:
    few, many = (len(count(1, 400, budget).kernels) for budget in (40, 140))
    assert many - few == 3 * 50  # fifty more visual centers
    assert len(count(8, 400, 140).kernels) <= many + 8


def test_without_a_table_a_center_takes_four() -> None:
    with patch.object(centers, "_TOKENS_OF_ONE", 0):
        few, many = (len(count(1, 400, budget).kernels) for budget in (40, 140))
    assert many - few <= 4 * 50 + 2


@pytest.mark.parametrize("kind", ["plain", "copies"])
@pytest.mark.parametrize("batch", [1, 8])
def test_the_host_reads_twice(batch: int, kind: str) -> None:
    assert 1 <= count(batch, 400, 100, kind).reads <= 2


def test_eta_is_read_once() -> None:
    visual, prompt = draw(4, 300)
    with pretend_accelerator(), count_kernels() as tally:
        tc.coupling(visual, prompt)
    assert tally.reads == 1
    assert len(tally.kernels) < 220  # for four samples together


def test_the_counter_counts() -> None:
    table = torch.ones(10, 20)
    with count_kernels() as tally:
        (table @ table.T).sum().item()
        table[0].tolist()
        table.index_select(0, torch.tensor([3]))
    assert tally.reads == 2
    assert [name for name, *_ in tally.kernels[:2]] == ["mm", "sum"]
    assert tally.kernels[0][1:] == (4 * (200 + 100), 10 * 10 * 20, 0)  # the same matrix, read once
    assert tally.kernels[-1][1] == 4 * (20 + 20) + 8


def test_at_2880_tokens_of_width_4096() -> None:
    """Six kernels a center and a gigabyte are the limits."""
    tally = count_on_shapes(Row(2880, 4096, 320, 1), "ours")
    assert len(tally.kernels) <= 6 * 160
    assert tally.bytes <= 1e9
    half = count_on_shapes(Row(2880, 4096, 320, 1), "ours", torch.bfloat16)
    assert half.bytes <= 0.9e9
    doubles = 8 * 2880 * 4096
    assert half.peak < doubles + 4 * 2880 * 4096  # the unit vectors, and far from all in float64


def test_meta_shapes_equal_value_shapes() -> None:
    counted = count_on_shapes(Row(576, 64, 64, 2), "ours")
    visual, prompt = (torch.randn(2, size, 64) for size in (576, 10))
    with pretend_accelerator(), count_kernels() as tally:
        mob_batch(visual, prompt, budget=64, prompt_budget=32, fold=4)
    assert abs(len(tally.kernels) - len(counted.kernels)) <= 8  # what packs the values to be read
    assert counted.bytes == pytest.approx(tally.bytes, rel=1e-3)


def test_memory_is_linear_in_the_tokens() -> None:
    """At 100,000 tokens: a copy in unit vectors, and a tenth on top."""
    tally = count_on_shapes(Row(100_000, 4096, 1024, 1), "ours")
    assert tally.peak < 1.25 * 4 * 100_000 * 4096


@pytest.mark.parametrize("precision", ["tf32", "none"])
def test_reduced_precision_disabled_then_restored(precision: str) -> None:
    matmul: Any = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = precision
        with keep_float32():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == precision
    finally:
        matmul.fp32_precision = before
