"""Unit vectors of a whole batch in float32, and exact rows of some tokens.

Tokens are read once, in the dtype that holds them. Estimates have the proven error of
`search/vectors.py`; only a few rows become float64 at a time. The host waits for no value here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.checks import check_finite
from tokencover.covering.exact import Points, cosine, snap
from tokencover.covering.search.vectors import bound_error, measure_norms, scale_to_one

_SNAPPED_AT_ONCE = 2**22
"""Numbers of one sample in float64 at a time: 32 MB."""
_CHUNK, _NORM_CHUNK = 1024, 256
"""Coordinates per partial sum of products and of squares; each chunk is a kernel that reads and
writes all sums, so they are larger than on a CPU."""
_OLD_SETTING = "allow_tf32", False
_SAFE_POWER = 48
"""Where the largest coordinate of each token is between 2**-48 and 2**48, or zero, squares neither
overflow nor vanish in float32."""


@dataclass(frozen=True, slots=True)
class Directions:
    """Tokens of a batch, ready to be compared.

    `tokens` are ``(b, n, d)``, at most float32, `exists` ``(b, n)`` bool, and `unit` ``(b, n, d)``
    float32; zero for a zero token and where there is none. `fit`, ``(1,)`` bool, is whether all are
    finite and of a size that float32 can square; if not, no result has a meaning: see `rescale`.
    """

    tokens: Tensor
    exists: Tensor
    unit: Tensor
    fit: Tensor

    @classmethod
    def of(cls, tokens: Tensor, exists: Tensor | None = None) -> Directions:
        """Measure tokens ``(b, n, d)``; those that do not exist may hold anything."""
        if tokens.dtype == torch.float64:  # as everywhere, what float32 holds of them counts
            tokens = tokens.float()
        if exists is None:
            exists = torch.ones(tokens.shape[:-1], dtype=torch.bool, device=tokens.device)
        else:
            tokens = tokens.masked_fill(~exists.unsqueeze(-1), 0.0)
        peak = torch.linalg.vector_norm(tokens, math.inf, dim=-1, keepdim=True).float()
        power = torch.frexp(peak).exponent.abs()
        fit = ((power <= _SAFE_POWER) & peak.isfinite()).all().view(1)
        norm = measure_norms(tokens, _NORM_CHUNK)
        scale = (1 / norm).float().masked_fill_(norm == 0, 0.0)
        unit = torch.mul(tokens, scale.unsqueeze(-1))
        return cls(tokens, exists, unit, fit)

    def rescale(self, name: str) -> Directions:
        """The same directions by tokens of moderate size; raise for NaN and infinity."""
        check_finite(name, self.tokens)
        return Directions.of(scale_to_one(self.tokens.float()), self.exists)

    @property
    def error(self) -> float:
        """Largest possible difference between an estimated and an exact cosine."""
        return bound_error(self.unit.shape[-1], _CHUNK, _NORM_CHUNK)

    @property
    def doubt(self) -> float:
        """Cosines whose estimates differ by no more may be in either order."""
        return 2 * self.error

    def sample(self, number: int) -> Directions:
        """One sample alone, as a batch of one."""
        one = slice(number, number + 1)
        return Directions(self.tokens[one], self.exists[one], self.unit[one], self.fit)

    def take_units(self, index: Tensor) -> Tensor:
        """Unit vectors of some tokens, ``(b, m, d)`` float32, for indices ``(b, m)``."""
        return take_rows(self.unit, index)

    def snap(self, index: Tensor) -> Points:
        """Some tokens, ``(b, m)``, in exact form."""
        return snap(take_rows(self.tokens, index))

    def compare_exactly(self, index: Tensor, others: Points) -> Tensor:
        """Exact cosines of some tokens, ``(b, m)``, with others, ``(b, k)``: ``(b, m, k)``."""
        blocks = index.split(_count_rows(self.tokens.shape[-1]), dim=1)
        return torch.cat([cosine(self.snap(block), others) for block in blocks], dim=1)

    def snap_all(self) -> Iterator[Points]:
        """All tokens in exact form, in order, some of every sample at a time."""
        for rows in self.tokens.split(_count_rows(self.tokens.shape[-1]), dim=1):
            yield snap(rows)


def _count_rows(width: int) -> int:
    return max(1, _SNAPPED_AT_ONCE // width)


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of every sample, ``(b, m, k)``, for a table ``(b, n, k)`` and indices ``(b, m)``."""
    if len(table) == 1:
        return table[0].index_select(0, index[0]).unsqueeze(0)
    return table.gather(1, index.unsqueeze(-1).expand(-1, -1, table.shape[-1]))


def multiply(rows: Tensor, others: Tensor) -> Tensor:
    """``rows @ others.T`` of every sample, summed chunk by chunk as the error bound assumes."""
    chunks = zip(rows.split(_CHUNK, dim=-1), others.split(_CHUNK, dim=-1), strict=True)
    first, *rest = chunks
    total = torch.bmm(first[0], first[1].mT)
    for left, right in rest:
        torch.baddbmm(total, left, right.mT, out=total)
    return total


def read_together(*values: Tensor) -> list[list[int]]:
    """Read whole numbers and booleans, ``(m,)`` each: the host waits once for all of them."""
    numbers = torch.cat([value.long() for value in values]).tolist()
    return [[numbers.pop(0) for _ in value] for value in values]


@contextmanager
def keep_float32() -> Iterator[None]:
    """Keep matrix products of an accelerator from dropping digits of float32 (TF32)."""
    matmul = torch.backends.cuda.matmul
    # The new name of the setting, where torch has it: it knows what was set by the old one.
    name, full = ("fp32_precision", "ieee") if hasattr(matmul, "fp32_precision") else _OLD_SETTING
    before = getattr(matmul, name)
    setattr(matmul, name, full)
    try:
        yield
    finally:
        setattr(matmul, name, before)
