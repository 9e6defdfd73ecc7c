"""Masks of models whose blocks do not see all tokens before them, and those alone.

Windows and chunks count columns of the whole text, and tokens of a picture may see each other in
both directions. After dropping, neither can be told from the short sequence. So the model makes its
masks for the whole text, as if nothing had been dropped, and rows and columns are cut from them:
what is left sees exactly what it would have seen.

A layer of a cache with windows holds the newest columns only, counted after dropping. No token that
a window still reaches is missing there: between it and the newest one there are at most as many
columns as there were before.
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
from tokencover.pruning.decoder.pruned_cache import PrunedCache
from tokencover.pruning.forward_pass import ForwardPass, Kept

READABLE = ("sdpa", "eager")
"""Attention implementations whose masks are tables of rows and columns."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a group of blocks, those of earlier passes first.

    Attributes
    ----------
    origins : Tensor
        ``(b, n)`` int64, where they stand in the whole text.
    seen : Tensor
        ``(b, n)`` bool, False for columns that only fill up.
    """

    origins: Tensor
    seen: Tensor

    def newest(self, count: int) -> Columns:
        """The last of them."""
        return Columns(self.origins[:, -count:], self.seen[:, -count:])


def make_own_mask(
    decoder: Any,
    current: ForwardPass,
    number: int,
    left: Kept | None,
    columns: Columns,
    kwargs: Mapping[str, Any],
) -> Tensor | None:
    """The mask of a block for what is left, cut from the one that it was called with.

    Parameters
    ----------
    decoder : nn.Module
        The text model.
    current : ForwardPass
        The pass under way.
    number : int
        Of the block.
    left : Kept or None
        The new tokens that are left, None if all are.
    columns : Columns
        Of its group.
    kwargs : Mapping
        Of the block's call.
    """
    cache = kwargs.get("past_key_values")
    check_readable(decoder.config, cache)
    new = current.length if left is None else left.index.shape[1]
    if cache is not None:
        columns = columns.newest(_count_columns(cache, number, new))
    attention = getattr(decoder.layers[number], "self_attn", None)
    causal = getattr(attention, "is_causal", True)  # what a missing mask means
    mask = kwargs.get("attention_mask")
    return cut_mask(mask, left, current.length, current.before, columns, causal)


def check_plain(decoder: Any, current: ForwardPass, number: int) -> None:
    """Reject a missing mask where a layer does not attend to all tokens before each token.

    Parameters
    ----------
    decoder : nn.Module
        The text model.
    current : ForwardPass
        The pass under way.
    number : int
        Index of the decoder layer.
    """
    kinds = list_layer_types(decoder)
    length, kind = current.before + current.length, kinds[number]
    # Full layers beside ones with windows may be causal (Gemma 4).
    if getattr(current, "has_both_directions", False) and (
        kind in WINDOWS or not set(WINDOWS) & set(kinds)
    ):
        raise InputError(
            f"Decoder layer {number} ({kind}) attends to images in both directions, but got no "
            "attention mask. Load the model with attn_implementation='sdpa' or 'eager'."
        )
    windows = dict(zip(WINDOWS, ("sliding_window", "attention_chunk_size"), strict=True))
    window = getattr(decoder.config, windows.get(kind, ""), None)
    if window is not None and length > window:
        raise InputError(
            f"Decoder layer {number} ({kind}) attends to {window} of {length} tokens, but got no "
            "attention mask. Load the model with attn_implementation='sdpa' or 'eager'."
        )


def cut_to_layer(
    decoder: Any, number: int, states: Tensor, kwargs: Mapping[str, Any]
) -> Tensor | None:
    """The mask of a block where nothing was dropped, cut from one for the whole text.

    A layer of the cache with windows holds only the end of it.
    """
    cache, mask = kwargs.get("past_key_values"), kwargs.get("attention_mask")
    check_readable(decoder.config, cache)
    if mask is None:
        return None
    found: Tensor = mask[..., -_count_columns(cache, number, states.shape[1]) :]
    return found


def cut_mask(
    mask: Tensor | None,
    kept: Kept | None,
    length: int,
    before: int,
    columns: Columns,
    causal: bool = True,
) -> Tensor | None:
    """The rows and columns of a mask that are left.

    Parameters
    ----------
    mask : Tensor or None
        ``(b or 1, 1, s, t)``, bool or what is added to logits, for the newest ``t`` columns of the
        text; None if every token sees all before it, or simply all.
    kept : Kept or None
        Which of the ``s`` new tokens are left, None if all are.
    length : int
        s, the number of new tokens.
    before : int
        Number of tokens in the text before them.
    columns : Columns
        Those that are left.
    causal : bool
        Without a mask, whether a token sees only those before it.

    Returns
    -------
    Tensor or None
        ``(b, 1, m, n)`` for ``m`` new tokens that are left; None if none is needed either.
    """
    origins, seen = columns.origins, columns.seen
    if mask is not None:
        origins, seen = origins.to(mask.device), seen.to(mask.device)
    rows = _find_rows(kept, length, origins)
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


def find_origins(current: ForwardPass, group: int, left: Kept | None, cache: Any) -> Tensor:
    """Where the columns of a group stand in the whole text: see `ForwardPass.origins`."""
    device, batch = current.real.device, len(current.real)
    new = torch.arange(current.length, device=device).expand(batch, -1)
    new = current.before + (new if left is None else left.index)
    past = cache.find_origins(group) if isinstance(cache, PrunedCache) else None
    if past is None:
        past = torch.arange(current.before, device=device).expand(batch, -1)
    return torch.cat([past.to(device), new], dim=1)


def _count_columns(cache: Any, number: int, new: int) -> int:
    """How many columns a block will see with `new` tokens of a pass."""
    with cache.tell_true_lengths() if isinstance(cache, PrunedCache) else nullcontext():
        return int(cache.get_mask_sizes(new, number)[0])


def _find_rows(kept: Kept | None, length: int, origins: Tensor) -> Tensor:
    """The new tokens that are left, ``(b, m)``."""
    if kept is not None:
        return kept.index.to(origins.device)
    return torch.arange(length, device=origins.device).expand(len(origins), -1)


def check_readable(config: Any, cache: Any) -> None:
    """Refuse what leaves nothing to cut from.

    Parameters
    ----------
    config : PreTrainedConfig
        Of the text model.
    cache : Any
        The model's cache, None if it has none.
    """
    attention = getattr(config, "_attn_implementation", None)
    if attention not in READABLE:
        raise InputError(
            f"attention {attention!r} counts windows after tokens were dropped, where the blocks "
            "of this model would see other tokens: load the model with "
            "attn_implementation='sdpa'."
        )
    if getattr(cache, "is_compileable", False):
        raise InputError(
            f"a {type(cache).__name__} keeps windows in places of its own, where those of dropped "
            "tokens cannot be left out: use a DynamicCache."
        )
