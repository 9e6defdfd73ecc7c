"""Masks of models whose layers do not attend to all tokens before each token, and those alone.

Windows and chunks count columns of the whole sequence, and tokens of one image may attend to each
other in both directions. Neither is known from the short sequence. So the model builds its masks
for the whole sequence, and the kept rows and columns are cut from them.

A cache layer with windows holds only the newest columns, counted after dropping. No token that a
window still reaches is missing there, because dropping never increases distances.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.families import WINDOWS, list_layer_types
from tokencover.pruning.decoder.cache import PrunedCache
from tokencover.pruning.passes import Kept, Pass

READABLE = ("sdpa", "eager")
"""Attention implementations whose masks are tables of rows and columns."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns ``(b, n)`` of a group of layers, those of earlier passes first.

    `origins` int64 are their positions in the whole sequence; `seen` is False for padding columns.
    """

    origins: Tensor
    seen: Tensor

    def newest(self, count: int) -> Columns:
        """The last `count` of them."""
        return Columns(self.origins[:, -count:], self.seen[:, -count:])


def build_own_mask(
    decoder: Any,
    current: Pass,
    layer_idx: int,
    kept: Kept | None,
    columns: Columns,
    kwargs: Mapping[str, Any],
) -> Tensor | None:
    """The mask of a layer for the kept tokens, cut from the one in `kwargs`."""
    cache = kwargs.get("past_key_values")
    check_readable(decoder.config, cache)
    new = current.length if kept is None else kept.index.shape[1]
    if cache is not None:
        columns = columns.newest(_count_columns(cache, layer_idx, new))
    attention = getattr(decoder.layers[layer_idx], "self_attn", None)
    causal = getattr(attention, "is_causal", True)  # what a missing mask means
    mask = kwargs.get("attention_mask")
    return cut_mask(mask, kept, current.length, current.tokens.before, columns, causal)


def check_plain(decoder: Any, current: Pass, layer_idx: int) -> None:
    """Reject a missing mask where a layer does not attend to all tokens before each token."""
    kinds = list_layer_types(decoder)
    length, kind = current.tokens.before + current.length, kinds[layer_idx]
    # Full layers beside ones with windows may be causal (Gemma 4).
    if current.tokens.both_directions and (kind in WINDOWS or not set(WINDOWS) & set(kinds)):
        raise InputError(
            f"Decoder layer {layer_idx} ({kind}) attends to images in both directions, but got no "
            "attention mask. Load the model with attn_implementation='sdpa' or 'eager'."
        )
    windows = dict(zip(WINDOWS, ("sliding_window", "attention_chunk_size"), strict=True))
    window = getattr(decoder.config, windows.get(kind, ""), None)
    if window is not None and length > window:
        raise InputError(
            f"Decoder layer {layer_idx} ({kind}) attends to {window} of {length} tokens, but got "
            "no attention mask. Load the model with attn_implementation='sdpa' or 'eager'."
        )


def cut_to_layer(
    decoder: Any, layer_idx: int, states: Tensor, kwargs: Mapping[str, Any]
) -> Tensor | None:
    """The mask of a layer where nothing was dropped, cut from one for the whole sequence.

    A layer of the cache with windows holds only the end of it.
    """
    cache, mask = kwargs.get("past_key_values"), kwargs.get("attention_mask")
    check_readable(decoder.config, cache)
    if mask is None:
        return None
    found: Tensor = mask[..., -_count_columns(cache, layer_idx, states.shape[1]) :]
    return found


def cut_mask(
    mask: Tensor | None,
    kept: Kept | None,
    length: int,
    before: int,
    columns: Columns,
    causal: bool = True,
) -> Tensor | None:
    """The kept rows and columns of a mask, ``(b, 1, m, n)``; None if none is needed.

    `mask` ``(b or 1, 1, s, t)``, bool or added to logits, is for the `length` new tokens and the
    newest ``t`` columns, after `before` tokens. Without it every token attends to all before it if
    `causal`, else to all.
    """
    origins, seen = columns.origins, columns.seen
    if mask is not None:
        origins, seen = origins.to(mask.device), seen.to(mask.device)
    if kept is None:
        rows = torch.arange(length, device=origins.device).expand(len(origins), -1)
    else:
        rows = kept.index.to(origins.device)
    if mask is None:
        plain = rows.shape[1] == 1 or rows.shape[1] == origins.shape[1]
        if plain and bool(seen.all()):
            return None
        visible = (origins.unsqueeze(1) <= before + rows.unsqueeze(-1)) | (not causal)
        return (visible & seen.unsqueeze(1)).unsqueeze(1)
    numbers = origins - (before + length - mask.shape[-1])
    seen = seen & (numbers >= 0)  # older columns are in no window of the new tokens
    samples = torch.arange(len(origins), device=mask.device)[:, None, None]
    table = mask[:, 0].expand(len(origins), -1, -1)
    found = table[samples, rows.unsqueeze(-1), numbers.clamp(min=0).unsqueeze(1)].unsqueeze(1)
    hidden = ~seen[:, None, None, :]
    if found.dtype == torch.bool:
        return found & ~hidden
    return found.masked_fill(hidden, torch.finfo(found.dtype).min)


def get_origins(current: Pass, group: int, kept: Kept | None, cache: Any) -> Tensor:
    """Positions of a group's columns in the whole sequence: see `LayerGroup`."""
    device, batch = current.tokens.real.device, len(current.tokens.real)
    new = torch.arange(current.length, device=device).expand(batch, -1)
    new = current.tokens.before + (new if kept is None else kept.index)
    past = cache.get_origins(group) if isinstance(cache, PrunedCache) else None
    if past is None:
        past = torch.arange(current.tokens.before, device=device).expand(batch, -1)
    return torch.cat([past.to(device), new], dim=1)


def _count_columns(cache: Any, layer_idx: int, new: int) -> int:
    """Number of columns that a layer attends to with `new` tokens of a pass."""
    with cache.report_true_lengths() if isinstance(cache, PrunedCache) else nullcontext():
        return int(cache.get_mask_sizes(new, layer_idx)[0])


def check_readable(config: Any, cache: Any) -> None:
    """Reject attention and caches whose masks cannot be cut."""
    attention = getattr(config, "_attn_implementation", None)
    if attention not in READABLE:
        raise InputError(
            f"Attention {attention!r} counts windows after tokens were dropped, so layers of this "
            "model would attend to other tokens. Load the model with attn_implementation='sdpa'."
        )
    if getattr(cache, "is_compileable", False):
        raise InputError(
            f"A {type(cache).__name__} keeps windows in fixed slots, which cannot be pruned. Use a "
            "DynamicCache."
        )
