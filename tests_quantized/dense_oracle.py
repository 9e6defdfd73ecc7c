"""The dense model made to do what a method did: tokens blocked, merged hidden states written in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tests.methods.replay import Taped
from tests.zoo import Inputs
from tests.zoo.oracle import blocked_forward_schedule, decoder_blocks
from tokencover.methods import Method
from tokencover.pruning.prune import prune

Writes = dict[int, list[tuple[int, Tensor, Tensor]]]
"""For each layer what is written before it: sample, sequence positions, hidden states."""


def compare(
    model: PreTrainedModel, method: Method, inputs: Inputs, prompt: Tensor, visual: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits of the kept positions: by `tc.prune`, and by the dense model."""
    taped, entered = Taped(method), []

    def record(_: nn.Module, args: Any, kwargs: Any) -> None:
        entered.append(args[0])

    with torch.no_grad(), prune(model, taped, prompt=prompt) as run:
        handle = decoder_blocks(model)[0].register_forward_pre_hook(record, with_kwargs=True)
        try:
            pruned = model(**inputs, use_cache=False).logits
        finally:
            handle.remove()
    if method.vision_blocks(3, 3) or not taped.tape:
        dropped, writes = _read_merged(run.trace[0].kept, visual, entered[0])
    else:
        dropped, writes = _read_tape(taped, visual)
    with _write_states(model, writes):
        dense = blocked_forward_schedule(model, inputs, dropped)
    left = inputs["attention_mask"].bool()
    for gone in dropped.values():
        left = left & ~gone
    return pruned[left], dense[left]


def _read_tape(taped: Taped, visual: Tensor) -> tuple[dict[int, Tensor], Writes]:
    """What a method chose before each layer."""
    dropped: dict[int, Tensor] = {}
    writes: Writes = {}
    left = visual.clone()
    for layer, choice in sorted(taped.tape.items()):
        gone, writes[layer] = left.clone(), []
        for sample, chosen in enumerate(choice.kept):
            kept = chosen.sort().values
            stays = left[sample].nonzero().squeeze(-1)[kept]
            gone[sample, stays] = False
            if choice.hidden_states is not None:
                writes[layer].append((sample, stays, choice.hidden_states[sample, kept]))
        dropped[layer] = gone
        left = left & ~gone
    return dropped, writes


def _read_merged(kept: Tensor, visual: Tensor, entered: Tensor) -> tuple[dict[int, Tensor], Writes]:
    """What a method that merges in the vision encoder left of one sample without padding."""
    stays = visual[0].nonzero().squeeze(-1)[kept]
    gone = visual.clone()
    gone[0, stays] = False
    short = visual[0][~gone[0]]
    return {0: gone}, {0: [(0, stays, entered[0, short])]}


@contextmanager
def _write_states(model: PreTrainedModel, writes: Writes) -> Iterator[None]:
    handles = []
    for layer, mine in writes.items():

        def write(_: nn.Module, args: Any, kwargs: Any, mine: Any = mine) -> Any:
            states = args[0].clone()
            for sample, positions, values in mine:
                states[sample, positions] = values
            return (states, *args[1:]), kwargs

        handles.append(
            decoder_blocks(model)[layer].register_forward_pre_hook(write, with_kwargs=True)
        )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
