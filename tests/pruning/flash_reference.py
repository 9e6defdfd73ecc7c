"""A ``flash_attn`` package in plain PyTorch, for transformers to use where there is no GPU.

Everything around the kernels stays transformers' own: the masks with two dimensions, the packing of
padded rows, the guess from positions whether a row holds several texts. The functions here follow
version 2 of flash-attn; what they do not follow they refuse.
"""

from __future__ import annotations

import importlib.machinery
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedModel, modeling_flash_attention_utils

IMPLEMENTATION = "flash_attention_2"
LOADED = (
    "_loaded_implementation",
    "_flash_fn",
    "_flash_varlen_fn",
    "_flash_with_kvcache_fn",
    "_pad_fn",
    "_unpad_fn",
    "_process_flash_kwargs_fn",
    "_process_with_kvcache_kwargs_fn",
)
"""Where transformers remembers the functions that it has imported."""

ANY = (-1, -1)


@dataclass
class FlashReference:
    """The kernels, and how often each was called with a causal mask.

    Attributes
    ----------
    plain : int
        Calls for rows of one length, without padding.
    packed : int
        Calls for rows that were laid end to end.
    """

    plain: int = 0
    packed: int = 0

    def flash_attn_func(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = ANY,
        deterministic: bool = False,
    ) -> Tensor:
        """Attention of ``(b, s, heads, d)`` over ``(b, t, kv_heads, d)``."""
        _refuse(dropout_p, window_size)
        self.plain += causal
        rows = zip(q, k, v, strict=True)
        return torch.stack([attention(*row, softmax_scale, causal) for row in rows])

    def flash_attn_varlen_func(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        dropout_p: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        window_size: tuple[int, int] = ANY,
        deterministic: bool = False,
    ) -> Tensor:
        """Attention of ``(all s, heads, d)`` over ``(all t, kv_heads, d)``, each row by itself."""
        _refuse(dropout_p, window_size)
        self.packed += causal
        queries = _rows(q, cu_seqlens_q, max_seqlen_q)
        keys, values = (_rows(each, cu_seqlens_k, max_seqlen_k) for each in (k, v))
        rows = zip(queries, keys, values, strict=True)
        return torch.cat([attention(*row, softmax_scale, causal) for row in rows])


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None, causal: bool) -> Tensor:
    """One row: ``(s, heads, d)`` over ``(t, kv_heads, d)``, in float32.

    The causal mask is aligned to the last query and the last key. A query that sees no key gets
    zeros. Consecutive query heads share a key head.
    """
    shared = q.shape[1] // k.shape[1]
    keys, values = (each.float().repeat_interleave(shared, dim=1) for each in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("shd,thd->hst", q.float(), keys) * scale
    seen = torch.ones(len(q), len(k), dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril(len(k) - len(q))
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1).masked_fill(~seen, 0.0)
    return torch.einsum("hst,thd->shd", weights, values).to(q.dtype)


def unpad_input(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The real tokens ``(n, ...)`` of ``(b, s, ...)``, their places, where rows begin and end."""
    lengths = mask.sum(-1, dtype=torch.int32)
    places = mask.flatten().nonzero().flatten()
    bounds = pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return states.flatten(0, 1)[places], places, bounds, int(lengths.max()), lengths


def pad_input(states: Tensor, places: Tensor, batch: int, length: int) -> Tensor:
    """The reverse: ``(b, s, ...)`` with zeros for padding."""
    padded = states.new_zeros(batch * length, *states.shape[1:])
    padded[places] = states
    return padded.view(batch, length, *states.shape[1:])


def install(monkeypatch: pytest.MonkeyPatch) -> FlashReference:
    """Make transformers find flash-attn 2, until the patches are undone."""
    kernels = FlashReference()
    package, padding = _module("flash_attn"), _module("flash_attn.bert_padding")
    package.__dict__.update(
        flash_attn_func=kernels.flash_attn_func,
        flash_attn_varlen_func=kernels.flash_attn_varlen_func,
        flash_attn_with_kvcache=None,  # for pages of a serving cache alone
        bert_padding=padding,
    )
    padding.__dict__.update(unpad_input=unpad_input, pad_input=pad_input)
    for module in (package, padding):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(modeling_flash_attention_utils, "is_flash_attn_2_available", lambda: True)
    for name in LOADED:
        monkeypatch.setattr(modeling_flash_attention_utils, name, None)
    return kernels


def with_flash(model: PreTrainedModel) -> PreTrainedModel:
    """The same model, all of whose parts use flash attention; it must be built without.

    `PreTrainedModel.set_attn_implementation` would ask for a GPU.
    """
    model.config._attn_implementation = IMPLEMENTATION
    return model


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None)
    return module


def _rows(packed: Tensor, bounds: Tensor, longest: int) -> list[Tensor]:
    """Cut ``(n, heads, d)`` where the rows begin and end."""
    lengths = bounds.diff()
    if bounds.dtype != torch.int32 or int(bounds[0]) != 0 or int(bounds[-1]) != len(packed):
        raise ValueError(f"int32 bounds from 0 to {len(packed)} are wanted, these are {bounds}")
    if int(lengths.max()) > int(longest):
        raise ValueError(
            f"a row has {int(lengths.max())} tokens, the longest was to have {longest}"
        )
    return list(packed.split(lengths.tolist()))


def _refuse(dropout: float, window: tuple[int, int]) -> None:
    if dropout != 0.0 or window != ANY:
        raise NotImplementedError(f"dropout {dropout} and window {window} have no reference here")
