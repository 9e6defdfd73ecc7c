"""Bytes of caches, and the peak of a call."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache

from tokencover.efficiency import instruments
from tokencover.efficiency.instruments import (
    count_cache_bytes,
    count_cached_tokens,
    count_weight_bytes,
    measure_peak,
)

MEGABYTE = 2**20


def test_a_cache_is_the_sum_of_its_keys_and_values() -> None:
    cache = DynamicCache()
    cache.update(torch.zeros(2, 3, 10, 8), torch.zeros(2, 3, 10, 16), 0)
    half = torch.zeros(2, 3, 4, 8, dtype=torch.bfloat16)
    cache.update(half, half, 1)
    assert count_cached_tokens(cache) == [10, 4]
    assert count_cache_bytes(cache) == 4 * 2 * 3 * 10 * (8 + 16) + 2 * 2 * 3 * 4 * (8 + 8)


def test_shared_weights_count_once() -> None:
    first, second = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4, bias=False)
    second.weight = first.weight
    assert count_weight_bytes(torch.nn.ModuleList([first, second])) == 4 * (8 * 4 + 4)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells")
def test_the_peak_counts_what_was_freed_again() -> None:
    def touch(megabytes: int) -> None:
        for _ in range(3):  # one after the other: the peak is one of them
            # From the system, not from a heap: what that keeps hangs on the tests before.
            with mmap(-1, megabytes * MEGABYTE, MAP_PRIVATE | MAP_ANONYMOUS) as block:
                for page in range(0, len(block), PAGESIZE):
                    block[page] = 1

    touch(1)
    for megabytes in (64, 40, 96):
        added = measure_peak(lambda size=megabytes: touch(size))  # type: ignore[misc]
        assert added is not None
        assert abs(added / MEGABYTE - megabytes) < 4


def test_elsewhere_the_peak_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "PROCESS", tmp_path)
    ran = []
    assert measure_peak(lambda: ran.append(1)) is None
    assert ran == [1]
