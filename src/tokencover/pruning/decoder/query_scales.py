"""Queries that grow with their place in the text, in blocks without rotation (Llama 4).

The attention counts places itself, in the sequence that it gets. Where tokens were dropped it
counts too few, so its queries are brought to the scale of their true places before it scales them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.pruning.hooks import is_aside, run_aside
from tokencover.pruning.internals import InternalsError
from tokencover.pruning.passes import Pass


class QueryScales:
    """Corrects the queries of those blocks that scale them.

    Parameters
    ----------
    blocks : sequence of nn.Module
        All decoder blocks.
    """

    def __init__(self, blocks: Sequence[nn.Module]) -> None:
        found = {number: block.get_submodule("self_attn") for number, block in enumerate(blocks)}
        self._attentions: dict[int, Any] = {
            number: attention
            for number, attention in found.items()
            if attention.attn_temperature_tuning and not attention.use_rope
        }
        if self._attentions:
            kind: Any = type(next(iter(self._attentions.values())))
            _check_formula(kind)
        self._local = threading.local()

    def list_hooks(self) -> Iterator[tuple[nn.Module, Any, bool]]:
        """What to hook on which module, and whether before it runs."""
        for number, attention in self._attentions.items():
            yield attention.q_proj, functools.partial(self._correct, number), False

    def prepare(self, current: Pass, number: int, states: Tensor, cache: Any) -> None:
        """A block is going to run on these states."""
        self._local.factor = None
        if number in self._attentions:
            self._local.factor = self._find_factor(current, number, states, cache)

    def _find_factor(
        self, current: Pass, number: int, states: Tensor, cache: Any
    ) -> tuple[int, Tensor] | None:
        """The block, and ``(b or 1, m, 1)``: by how much its queries are scaled too little."""
        attention, kept = self._attentions[number], current.find_kept(number)
        past = 0 if cache is None else int(cache.get_seq_length(attention.layer_idx))
        if kept is None and past == current.tokens.before:
            return None
        counted = torch.arange(states.shape[1], device=states.device).unsqueeze(0)
        places = counted if kept is None else kept.index.to(states.device)
        true = _scale(attention, current.tokens.before + places)
        return number, (true / _scale(attention, past + counted)).unsqueeze(-1)

    def _correct(
        self, number: int, module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> Tensor | None:
        found = None if is_aside() else getattr(self._local, "factor", None)
        if found is None or found[0] != number:
            return None
        scaled: Tensor = output * found[1].to(output.device)
        return scaled.to(output.dtype)


@functools.cache
def _check_formula(kind: Any) -> None:
    """Compare `_scale` once with what the attention itself does to its queries."""
    from transformers import Llama4TextConfig

    config = Llama4TextConfig(
        hidden_size=8,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        num_hidden_layers=1,
        no_rope_layers=[0],
        attn_temperature_tuning=True,
        floor_scale=3,
        attn_scale=0.7,
    )
    config._attn_implementation = "eager"
    length = 11
    states = torch.linspace(-1, 1, length * 8).sin().view(1, length, 8)
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        attention: Any = kind(config, 0)
        found = run_aside(lambda: attention(states, None, None)[0])
        attention.attn_temperature_tuning = False
        scales = _scale(attention, torch.arange(length)).unsqueeze(-1)
        hook = attention.q_proj.register_forward_hook(lambda *call: call[-1] * scales)
        expected = run_aside(lambda: attention(states, None, None)[0])
        hook.remove()
    if not torch.allclose(found, expected, atol=1e-5):
        raise InternalsError(
            f"{kind.__name__} scales its queries by another formula than the one known here, so "
            "pruned positions would get the wrong scale. Install a tested version of transformers "
            "(see docs/limits.md)."
        )


def _scale(attention: Any, places: Tensor) -> Tensor:
    """As the attention computes it."""
    steps = torch.floor((places.float() + 1.0) / attention.floor_scale)
    scales: Tensor = torch.log1p(steps) * attention.attn_scale + 1.0
    return scales
