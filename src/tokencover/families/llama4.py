"""Llama 4: square tiles, layers that attend in chunks, and queries scaled by position."""

from __future__ import annotations

import functools
import threading
from contextvars import Context
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InternalsError
from tokencover.families.family import Family, GetPass
from tokencover.families.tiles import build_square_tiles

if TYPE_CHECKING:
    from tokencover.pruning.hooks import Hooks
    from tokencover.pruning.passes import Pass


def correct_query_scales(decoder: Any, hooks: Hooks, get_pass: GetPass) -> None:
    """Scale the queries of layers without rotation by their positions in the whole sequence.

    These layers count positions in the sequence that they get, and so too few where tokens were
    dropped. A hook brings queries to the right scale before the layer scales them.
    """
    factors: Any = WeakIdKeyDictionary()
    running = threading.local()

    def enter(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        running.rotation = kwargs.get("position_embeddings")

    def correct(layer_idx: int, attention: Any, *call: Any) -> Tensor | None:
        current, output = get_pass(), call[-1]
        rotation, running.rotation = getattr(running, "rotation", None), None
        if rotation is None:
            return None
        # Gradient checkpointing runs an attention again after its pass, with the same rotation.
        known: dict[int, Tensor | None] = factors.setdefault(rotation, {})
        if current is not None:
            known[layer_idx] = _compute_factor(attention, current, layer_idx, output)
        factor = known.get(layer_idx)
        return None if factor is None else (output * factor).to(output.dtype)

    for layer_idx, layer in enumerate(decoder.layers):
        attention = layer.self_attn
        if attention.attn_temperature_tuning and not attention.use_rope:
            _check_formula(attention.__class__)
            hooks.before(attention, enter)
            hooks.after(attention.q_proj, functools.partial(correct, layer_idx, attention))


def _compute_factor(
    attention: Any, current: Pass, layer_idx: int, queries: Tensor
) -> Tensor | None:
    """The right scale of queries by the one they get, ``(b or 1, m, 1)``; None if equal."""
    kept, cache = current.find_kept(layer_idx), current.cache
    past = 0 if cache is None else int(cache.get_seq_length(attention.layer_idx))
    if kept is None and past == current.tokens.before:
        return None
    counted = torch.arange(queries.shape[1], device=queries.device).unsqueeze(0)
    positions = counted if kept is None else kept.index.to(queries.device)
    true = _compute_scale(attention, current.tokens.before + positions)
    return (true / _compute_scale(attention, past + counted)).unsqueeze(-1)


@functools.cache
def _check_formula(attention_class: Any) -> None:
    """Compare `_compute_scale` with what the attention does to its queries."""
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
        attention: Any = attention_class(config, 0)
        # A context of its own: transformers' hooks must not record this attention.
        scaled = Context().run(attention, states, None, None)[0]
        attention.attn_temperature_tuning = False
        scales = _compute_scale(attention, torch.arange(length)).unsqueeze(-1)
        attention.q_proj.register_forward_hook(lambda *call: call[-1] * scales)
        expected = Context().run(attention, states, None, None)[0]
    if not torch.allclose(scaled, expected, atol=1e-5):
        raise InternalsError(
            f"{attention_class.__name__} scales its queries by another formula than the one known "
            "here, so pruned positions would get the wrong scale. Install a tested version of "
            "transformers (see docs/guide/limits.md)."
        )


def _compute_scale(attention: Any, positions: Tensor) -> Tensor:
    """The scale of queries, as the attention computes it."""
    steps = torch.floor((positions.float() + 1.0) / attention.floor_scale)
    scales: Tensor = torch.log1p(steps) * attention.attn_scale + 1.0
    return scales


LLAMA4 = Family(
    name="Llama 4",
    model_types=("llama4",),
    layouts=functools.partial(
        build_square_tiles,
        merge=lambda side, config: int(side * config.vision_config.pixel_shuffle_ratio),
    ),
    base="",
    decoder="language_model.model",
    vision_encoders=("vision_model",),
    projector="multi_modal_projector",
    windows=True,
    reads_attention=False,
    decoder_hooks=correct_query_scales,
)
"""Llama 4: square tiles, and layers that attend in chunks."""
