"""Masks and positions that a model is called with: padding is read, other structure refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tokencover.errors import InputError

_HIDDEN = -1e4
"""What is added to the logits of attention for a token that must not be seen, at the most."""
_UNPACK = "while pruning, give each document a row of its own, padded to the longest."


def check_executed(tokens: Tensor, embedding: Any) -> None:
    """Reject passes without values, which a selection depends on.

    Parameters
    ----------
    tokens : Tensor
        ``(b, s)``, token ids or a column of the embeddings.
    embedding : nn.Module
        The model's input embeddings; accelerate loads offloaded weights when the module runs.
    """
    weight = getattr(embedding, "weight", tokens)
    is_empty = weight.device.type == "meta" and not hasattr(embedding, "_hf_hook")
    if is_empty or tokens.device.type == "meta" or isinstance(tokens, FakeTensor):
        raise InputError(
            "The model or its inputs have no values (meta device or fake tensors), so no tokens "
            "can be selected. Load the weights and move the inputs to the model's device."
        )


def find_real_tokens(
    mask: Any, shape: tuple[int, int], device: torch.device, cached: int, is_static: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Which new tokens are real, and which earlier ones, from whatever mask the model was given.

    Parameters
    ----------
    mask : Any
        The ``attention_mask`` of the call.
    shape : tuple of int
        Rows and new tokens in each.
    device : torch.device
        Where the tokens are.
    cached : int
        Tokens in the cache before this pass.
    is_static : bool
        Whether the cache has places for tokens to come, which the mask may have columns for.
    """
    batch, length = shape
    mask = _find_full_mask(mask)
    if mask is None:
        return torch.ones(batch, length, dtype=torch.bool, device=device), None
    if mask.dim() == 4:
        real, past = _read_table(_cut_table(mask, length, cached))
        return real.expand(batch, -1), past.expand(batch, -1)
    _check_width(mask.shape[1], length, cached, is_static)
    mask = mask.bool()
    return mask[:, cached : cached + length], mask[:, :cached]


def _check_width(columns: int, length: int, cached: int, is_static: bool) -> None:
    """Refuse a mask that is not about the tokens that there are.

    Columns after them do no harm in a prompt, or where a cache has room for them. Where others go
    on from a cache, it may have lost tokens without telling: keys and values that were put there
    by hand.
    """
    spare = columns - cached - length
    if spare < 0 or (spare > 0 and cached > 0 and not is_static):
        raise InputError(
            f"attention_mask has {columns} columns, but there are {cached} tokens in the cache and "
            f"{length} new ones: give every token one. (Keys and values of a pruned prompt that "
            "were put into a cache by hand do not say what was dropped: copy it by copy.deepcopy.)"
        )


def check_structure(
    arguments: Mapping[str, Any], real: Tensor, cached: int, is_flash: bool = False
) -> None:
    """Refuse masks and positions that hold more than causality and padding.

    Parameters
    ----------
    arguments : Mapping
        Of the multimodal model's forward.
    real : Tensor
        ``(b, s)`` bool, the new tokens that are not padding.
    cached : int
        Tokens in the cache before this pass.
    is_flash : bool
        Whether the model runs under flash attention.
    """
    mask = _find_full_mask(arguments.get("attention_mask"))
    if isinstance(mask, Tensor) and mask.dim() == 4:
        _check_table(mask, real, cached)
    # Flash attention drops a mask of ones, and reads the documents of a single row as without one.
    plain = mask is None or (mask.dim() == 2 and len(mask) == 1 and bool(mask.all()) and is_flash)
    if plain and cached == 0:
        _check_positions(arguments.get("position_ids"))
    if arguments.get("cu_seq_lens_q") is not None:
        raise InputError(f"cu_seq_lens_q packs several documents into one row: {_UNPACK}")


def _find_full_mask(mask: Any) -> Tensor | None:
    found: Tensor | None = mask["full_attention"] if isinstance(mask, Mapping) else mask
    return found


def _see(table: Tensor) -> Tensor:
    """Which tokens may be seen, from a table of booleans or of what is added to logits."""
    return table if table.dtype == torch.bool else table >= 0


def _cut_table(mask: Tensor, length: int, cached: int) -> Tensor:
    """Which tokens each new token sees, ``(b or 1, length, cached + length)`` bool."""
    return _see(mask[:, 0, -length:, : cached + length])


def _read_table(table: Tensor) -> tuple[Tensor, Tensor]:
    """Which new tokens are real, and which earlier ones, from what each new token sees.

    A real token is seen by the last one, or by another that comes later. The rows of padding mean
    nothing: they may be empty, or hold the token itself, or everything, later tokens too. Where the
    last row is empty, padding sees nothing, and a real token is one that sees itself.
    """
    length = table.shape[1]
    cached = table.shape[2] - length
    new = table[..., cached:]
    sees_later_tokens = new.triu(1).any(-1, keepdim=True)
    seen_later = (new & ~sees_later_tokens).tril(-1).any(-2)
    sees_itself = new.diagonal(dim1=-2, dim2=-1)
    ends_empty = ~table[:, -1:].any(-1)
    real = torch.where(ends_empty, sees_itself, new[:, -1] | seen_later)
    past = table[..., :cached].any(-2)
    return real, past


def _check_table(mask: Tensor, real: Tensor, cached: int) -> None:
    """Every real token must see all real tokens before it, and no others."""
    length = real.shape[1]
    seen = _cut_table(mask, length, cached)
    new, past = _read_table(seen)
    places = torch.arange(cached + length, device=mask.device)
    causal = places <= places[cached:].unsqueeze(-1)
    expected = causal & torch.cat([past, new], -1).unsqueeze(-2)
    plain = mask.dtype == torch.bool or bool(((mask == 0) | (mask < _HIDDEN)).all())
    alike = bool((mask == mask[:, :1]).all())
    if not plain or not alike or bool(((seen != expected) & new.unsqueeze(-1)).any()):
        raise InputError(
            f"attention_mask of shape {tuple(mask.shape)} holds more than causality and padding "
            "(several documents, a prefix or weights): that structure would be lost when tokens "
            f"are dropped; {_UNPACK}"
        )


def _check_positions(position_ids: Any) -> None:
    """Without a mask, transformers reads positions that do not go on by one as documents."""
    if not isinstance(position_ids, Tensor):
        return
    if position_ids.dim() == 3:
        if len(position_ids) != 4:  # rows, columns and times only: those of text go first
            return
        position_ids = position_ids[0]
    restarts = (position_ids.diff(dim=-1) != 1).nonzero()
    if len(restarts):
        row, column = restarts[0].tolist()
        raise InputError(
            f"position_ids do not go on by one after token {column} of row {row}: several "
            f"documents in one row would be read as one when tokens are dropped; {_UNPACK}"
        )
