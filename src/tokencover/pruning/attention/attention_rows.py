"""A few rows of attention weights, from queries and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.errors import InputError
from tokencover.pruning.attention.block_recorder import Past
from tokencover.pruning.attention.known_attention import KnownAttention, Letter
from tokencover.pruning.forward_pass import Kept


@dataclass(frozen=True, slots=True)
class Projections:
    """What a block attends with; ``m`` tokens are left of the sequence.

    Attributes
    ----------
    attention : KnownAttention
        Of the block.
    keys : Tensor
        ``(b, m, kv_heads, head_dim)``, not yet rotated.
    queries_at : callable
        ``queries_at(samples, slots)`` gives ``(b', q, heads, head_dim)``, not yet rotated, for
        samples ``(b', 1)`` and slots ``(b', q)`` of the ``m``.
    rotation : tuple of Tensor
        Cosines and sines, ``(b or 1, m, rotated dims)`` each.
    left : Kept or None
        Which tokens the ``m`` are; None if they are all.
    real : Tensor
        ``(b, m)`` bool, False for padding.
    past : Past or None
        Cached keys that the block attends to as well.
    has_run : bool
        Whether the cache has got the keys of this pass by now.
    mask : Tensor or None
        ``(b, 1, m, p + m)``, bool or what is added to logits: what each token sees, for models
        whose blocks have masks of their own. None if each sees all before it.
    """

    attention: KnownAttention
    keys: Tensor
    queries_at: Callable[[Tensor, Tensor], Tensor]
    rotation: tuple[Tensor, Tensor]
    left: Kept | None
    real: Tensor
    past: Past | None
    has_run: bool
    mask: Tensor | None = None

    @property
    def past_length(self) -> int:
        """p, how many cached keys stand before the others."""
        return 0 if self.past is None else self.past.length

    def keys_at(self, samples: Tensor, slots: Tensor, rotated: bool) -> Tensor:
        """Keys ``(b', kv_heads, q, head_dim)`` for samples ``(b',)`` and slots ``(b', q)``."""
        pick = (samples.to(self.keys.device).unsqueeze(-1), slots.to(self.keys.device))
        found = self.keys[pick].transpose(1, 2)
        return self._rotate("k", found, pick) if rotated else found

    def weigh(self, samples: Tensor, slots: Tensor, asked: Tensor) -> Tensor:
        """Attention weights ``(b', heads, q, p + m)`` float32.

        Parameters
        ----------
        samples : Tensor
            ``(b',)`` int64, rows of the batch.
        slots : Tensor
            ``(b', q)`` int64, which of the ``m`` tokens ask.
        asked : Tensor
            ``(b', q)`` bool; where it is False the weights mean nothing.
        """
        scores = self._score(samples, slots)
        hidden = ~self._find_visible(samples, slots) & asked.unsqueeze(-1)
        scores.masked_fill_(hidden.unsqueeze(1).to(scores.device), -torch.inf)
        return scores.softmax(-1)

    def _rotate(self, letter: Letter, heads: Tensor, pick: tuple[Tensor, Tensor]) -> Tensor:
        cosines, sines = (
            table.to(heads.device).expand(len(self.keys), -1, -1)[pick] for table in self.rotation
        )
        return self.attention.rotate(letter, heads, cosines, sines)

    def _score(self, samples: Tensor, slots: Tensor) -> Tensor:
        """Scaled products ``(b', heads, q, p + m)`` of the chosen queries with all keys."""
        device, new = self.keys.device, self.keys.shape[1]
        samples, slots = samples.to(device), slots.to(device)
        pick = (samples.unsqueeze(-1), slots)
        chosen = self.queries_at(*pick).to(device).transpose(1, 2)
        with torch.autocast(device.type, enabled=False):
            chosen = self._rotate("q", chosen, pick)
            everywhere = torch.arange(new, device=device).expand(len(samples), -1)
            others = self.keys_at(samples, everywhere, rotated=True)
            if self.past is not None:
                name = self.attention.name
                earlier = read_cached_keys(name, self.past, new if self.has_run else 0)
                others = torch.cat([earlier.to(others)[samples], others], dim=2)
            batch, heads, count, size = chosen.shape
            # Query heads that share a key head follow each other.
            grouped = chosen.float().reshape(batch, others.shape[1], -1, size)
            products = grouped @ others.float().transpose(-1, -2)
        return products.view(batch, heads, count, -1) * self.attention.scaling

    def _find_visible(self, samples: Tensor, slots: Tensor) -> Tensor:
        """``(b', q, p + m)`` bool: what each row sees."""
        if self.mask is not None:
            table = self.mask[:, 0] if self.mask.dtype == torch.bool else self.mask[:, 0] >= 0
            pick = (samples.to(table.device).unsqueeze(-1), slots.to(table.device))
            return table[pick].to(slots.device)
        real = self.real[samples]
        places = torch.arange(real.shape[1], device=real.device)
        visible = real.unsqueeze(1) & (places <= slots.unsqueeze(-1))
        if self.past is None:
            return visible
        if self.past.columns is None:
            columns = real.new_ones(len(real), self.past.length)
        else:
            columns = self.past.columns.to(real.device)[samples]
        columns = columns.unsqueeze(1).expand(-1, slots.shape[1], -1)
        return torch.cat([columns, visible], dim=-1)


def read_cached_keys(block: str, past: Past, new: int) -> Tensor:
    """The keys ``(b, kv_heads, p, head_dim)`` of earlier passes, before `new` of this one."""
    if past.keys is not None:
        return past.keys.detach()
    keys = getattr(past.layer, "keys", None)
    if not past.readable or keys is None or keys.dim() != 4 or keys.shape[2] < past.length + new:
        raise InputError(
            f"{block} attends to {past.length} cached tokens whose keys cannot be read from this "
            f"cache ({type(past.layer).__name__}), so its attention is not known: use a "
            "DynamicCache or StaticCache without offloading, or begin without a cache."
        )
    found: Tensor = keys.detach()[:, :, : past.length]
    return found
