"""Fast float32 cosines with a proven error, to find the few pairs worth an exact look.

Exact arithmetic (`exact.py`) reads each token in float64. Most tokens never matter: a float32
estimate already shows that they are too far, or not far enough. `Cloud` gives such estimates and
`Cloud.error`, a bound that holds for *any* order of summation. So a search that keeps every pair
within twice the error of a threshold, and decides among those exactly, finds the exact answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering.checks import check_finite
from tokencover.covering.exact import Points, snap, snap_in_place
from tokencover.covering.lazy.workspace import Workspace

_UNIT_ROUNDOFF = 2.0**-24
_CHUNK = 1024
"""Products are summed over this many coordinates at a time: the bound grows with the chunk."""
_NORM_CHUNK = 256
_SAFE_NORM = 1e15
"""Between 1 / this and this, squares and products neither overflow nor vanish in float32."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """One sample's tokens, ready to be compared.

    Attributes
    ----------
    tokens : Tensor
        ``(n, d)`` float32.
    inverse_norm : Tensor
        ``(n,)`` float32; 0 for a zero token.
    error : float
        Largest possible difference between an estimated and an exact cosine.
    """

    tokens: Tensor
    inverse_norm: Tensor
    error: float

    @property
    def width(self) -> int:
        """The dimension d."""
        return self.tokens.shape[1]

    @property
    def doubt(self) -> float:
        """Cosines whose estimates differ by no more may be in either order."""
        return 2 * self.error

    @classmethod
    def of(cls, name: str, tokens: Tensor) -> Cloud:
        """Measure the tokens (``(n, d)`` float32) once; NaN and infinity are refused."""
        norm = _measure_norms(tokens)
        safe = (norm > 1 / _SAFE_NORM) & (norm < _SAFE_NORM)
        if tokens[~safe].any():  # more than zero rows
            check_finite(name, tokens)
            tokens = _scale_to_one(tokens)
            norm = _measure_norms(tokens)
        inverse = torch.where(norm > 0, 1 / norm, 0.0).float()
        return cls(tokens, inverse, _bound_error(tokens.shape[-1]))

    def find_directions(self, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Unit vectors of some tokens, or of all, ``(m, d)`` float32."""
        if index is None:
            return self.tokens * self._take_scale(index)
        return torch.index_select(self.tokens, 0, index, out=out).mul_(self._take_scale(index))

    def estimate_cosines(
        self, directions: Tensor, index: Tensor | None = None, space: Workspace | None = None
    ) -> Tensor:
        """Estimated cosine of some of the tokens, or all, with unit vectors, ``(n, m)`` float32."""
        return _multiply(self._take_rows(index, space), directions, space).mul_(
            self._take_scale(index)
        )

    def estimate_mutual_cosines(self, index: Tensor) -> Tensor:
        """Estimated cosines of some tokens with each other, ``(m, m)`` float32."""
        space = Workspace.of_this_thread("mutual")
        out = space.empty("directions", (len(index), self.width), torch.float32)
        return self.estimate_cosines(self.find_directions(index, out), index, space)

    def snap(self, index: Tensor | None = None, space: Workspace | None = None) -> Points:
        """Some tokens, or all, in exact form; if in a `space`, until its next use."""
        rows = self._take_rows(index, space)
        if space is None:
            return snap(rows)
        shape = tuple(rows.shape)
        grid = space.empty("grid", shape, torch.float64).copy_(rows)
        return snap_in_place(grid, space.empty("squares", shape, torch.float64))

    def _take_rows(self, index: Tensor | None, space: Workspace | None = None) -> Tensor:
        if index is None:
            return self.tokens
        shape = (len(index), self.width)
        out = None if space is None else space.empty("rows", shape, torch.float32)
        # several times quicker than indexing with brackets
        return torch.index_select(self.tokens, 0, index, out=out)

    def _take_scale(self, index: Tensor | None) -> Tensor:
        scale = self.inverse_norm if index is None else self.inverse_norm.index_select(0, index)
        return scale.unsqueeze(-1)


def _bound_error(dimension: int) -> float:
    """How far an estimate can be from the exact cosine.

    In units of float32 round-off: one per coordinate for the products inside a chunk, one per
    chunk for adding these up, half a (smaller) chunk for each of the two norms, sqrt(d) for
    snapping both tokens to the grid, and a little for the last few roundings.
    """
    inside, between = min(_CHUNK, dimension), dimension / _CHUNK
    norms, grid = min(_NORM_CHUNK, dimension), math.sqrt(dimension)
    return (inside + between + norms + grid + 32) * _UNIT_ROUNDOFF


def _scale_to_one(tokens: Tensor) -> Tensor:
    """Bring every norm into [1/2, 1) by a power of two, which changes no direction."""
    rows = tokens.double()
    exponent = torch.frexp(torch.linalg.vector_norm(rows, dim=-1, keepdim=True)).exponent
    return torch.ldexp(rows, -exponent).float()


def _measure_norms(tokens: Tensor) -> Tensor:
    whole = tokens.shape[-1] // _NORM_CHUNK * _NORM_CHUNK
    parts = [tokens[:, :whole].unflatten(-1, (-1, _NORM_CHUNK)), tokens[:, whole:].unsqueeze(1)]
    norms = torch.cat([torch.linalg.vector_norm(part, dim=-1) for part in parts], dim=-1)
    return norms.double().square_().sum(-1).sqrt_()


def _multiply(rows: Tensor, directions: Tensor, space: Workspace | None) -> Tensor:
    """``rows @ directions.T``, summed chunk by chunk to keep the error bound small."""
    if not _float32_is_float32():
        return (rows.double() @ directions.double().T).float()
    space = Workspace() if space is None else space
    shape = (len(rows), len(directions))
    total, part = (space.empty(name, shape, torch.float32) for name in ("total", "part"))
    chunks = zip(rows.split(_CHUNK, dim=-1), directions.split(_CHUNK, dim=-1), strict=True)
    for number, (left, right) in enumerate(chunks):
        torch.mm(left, right.T, out=part if number else total)
        if number:
            total += part
    return total


def _float32_is_float32() -> bool:
    """Whether float32 products on the CPU are computed in float32, not in bfloat16 or TF32."""
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return getattr(matmul, "fp32_precision", "none") in {"none", "ieee"}
