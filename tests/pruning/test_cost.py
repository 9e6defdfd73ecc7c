"""The cost of decoder layers against PyTorch's own counter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.efficiency.test_flops import allow_for_mean
from tests.pruning.random_method import KeepRandom
from tests.zoo import ZOO
from tokencover.families import family_of
from tokencover.pruning.prune import prune

TOLD = [name for name, entry in ZOO.items() if entry.alike is None and not entry.recurrent]


def counted(model: Any, inputs: dict[str, Any]) -> int:
    """What the counter sees inside the decoder's blocks."""
    decoder = family_of(model).decoder
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**inputs, use_cache=False)
    counts = counter.get_flop_counts()
    prefix = f"{type(model).__name__}.{decoder}.layers."
    depth = prefix.count(".") + 1
    return sum(
        sum(operations.values())
        for module, operations in counts.items()
        if module.startswith(prefix) and module.count(".") == depth - 1
    )


@pytest.mark.parametrize("name", TOLD)
def test_trace_tells_the_operations_of_the_blocks(name: str) -> None:
    entry = ZOO[name]
    model = entry.build("eager").requires_grad_(False)  # the counter stumbles over Idefics2's
    inputs = entry.inputs("single", "left")
    plain = counted(model, inputs)
    method = KeepRandom(7, (1, 3))
    with prune(model, method, prompt=entry.user_words(inputs)) as run:
        pruned = counted(model, inputs)
    trace = run.trace[0]
    assert plain > 0
    assert trace.flops_unpruned == plain
    assert pruned == allow_for_mean(model, trace.flops)
    assert trace.mean_tokens == sum(trace.tokens_per_layer) / 5
