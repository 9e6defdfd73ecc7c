"""Bytes of caches, and the peak of a call."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache

from tests.zoo import ZOO
from tokencover.efficiency import instruments
from tokencover.efficiency.instruments import (
    FlopCounter,
    count_cache_bytes,
    count_cached_tokens,
    count_weight_bytes,
    measure_peak,
)
from tokencover.methods import FastV, VisionZip
from tokencover.pruning import prune

MEGABYTE = 2**20


def test_cache_bytes_sum_keys_and_values() -> None:
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


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux reports it")
def test_the_peak_counts_what_was_freed_again() -> None:
    def touch(megabytes: int) -> None:
        for _ in range(3):  # one after the other: the peak is one of them
            # From the system: what a heap keeps depends on earlier tests.
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


class _ForeignLinear(nn.Linear):
    """Computes its product where PyTorch's counter does not see it, as quantized layers do."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        product = torch.from_numpy(rows.detach().numpy() @ self.weight.detach().numpy().T)
        return product if self.bias is None else product + self.bias


def test_products_of_foreign_layers_are_counted() -> None:
    entry = ZOO["llava"]
    model: Any = entry.build().requires_grad_(False)
    inputs = entry.inputs("single")
    counts = []
    for layer in (nn.Linear, _ForeignLinear):
        for name, part in list(model.named_modules()):
            if type(part) is nn.Linear and layer is not nn.Linear:
                same = layer(part.in_features, part.out_features, part.bias is not None)
                same.load_state_dict(part.state_dict())
                model.set_submodule(name, same)
        counter = FlopCounter()
        method = counter.watch_method(FastV(7))
        words = entry.user_words(inputs)
        with (
            torch.no_grad(),
            counter.watch_encoder(model.model),
            prune(model, method, prompt=words),
        ):
            model(**inputs)
        counts.append((counter.vision, counter.selection))
    assert counts[0] == counts[1]
    assert counts[0][0] > 0


class _NeverEmpty(nn.Linear):
    """Fails without rows, where bitsandbytes' 4-bit kernel ends the process."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        assert len(rows)
        return super().forward(rows)


def test_visionzip_projects_no_empty_batch() -> None:
    entry = ZOO["llava"]
    model: Any = entry.build()
    plain = model.model.multi_modal_projector.linear_1
    same = _NeverEmpty(plain.in_features, plain.out_features, plain.bias is not None)
    same.load_state_dict(plain.state_dict())
    model.model.multi_modal_projector.linear_1 = same
    inputs = entry.inputs("ragged")
    with torch.no_grad(), prune(model, VisionZip(1.0), prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    assert [len(each.kept) for each in run.trace] == [25, 25, 25]
