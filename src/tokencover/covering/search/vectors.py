"""Tokens of one sample, and float32 estimates of their cosines with a proven error.

Exact arithmetic (`exact.py`) reads each token in float64. Most tokens never matter: an estimate
already shows that they are too far, or not far enough. `CosineEstimates.error` bounds the error for
*any* order of summation. So a search that keeps every pair within twice the error of a threshold,
and decides among those exactly, finds the exact answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.checks import check_finite
from tokencover.covering.exact import Points, round_to_grid, snap
from tokencover.covering.search.scratch import ScratchBuffers, count_threads, run_in_pieces

UNIT_ROUNDOFF = 2.0**-24
ROUNDING = 1e-6
"""More than float32 loses when the error is subtracted from an estimate."""
_SAFE_NORM = 1e15
"""Between 1 / this and this, squares and products neither overflow nor vanish in float32."""
_EIGHT_TRUE = 0x0101010101010101

Rows = Tensor | slice
"""Some tokens: their indices, or consecutive ones."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """One sample's tokens, ``(n, d)`` float32, and ``(n,)`` inverse norms; 0 for a zero token."""

    tokens: Tensor
    inverse_norm: Tensor

    @classmethod
    def of(cls, name: str, tokens: Tensor, whole: Tensor | None = None) -> Vectors:
        """Measure the tokens once. Raise for NaN and infinity, with their index in `whole`."""
        norm = measure_norms(tokens)
        safe = (norm > 1 / _SAFE_NORM) & (norm < _SAFE_NORM)
        if tokens[~safe].any():  # more than zero tokens
            check_finite(name, tokens if whole is None else whole)
            tokens = scale_to_one(tokens)
            norm = measure_norms(tokens)
        return cls(tokens, torch.where(norm > 0, 1 / norm, 0.0).float())

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def width(self) -> int:
        """The dimension d."""
        return self.tokens.shape[1]

    def get_tokens(
        self, index: Rows | None = None, buffers: ScratchBuffers | None = None
    ) -> Tensor:
        """Some tokens, or all, ``(m, d)``; in `buffers` until their next use."""
        if index is None or isinstance(index, slice):
            return self.tokens if index is None else self.tokens[index]
        shape = (len(index), self.width)
        out = None if buffers is None else buffers.empty("rows", shape, torch.float32)
        # several times faster than indexing with brackets
        return torch.index_select(self.tokens, 0, index, out=out)

    def get_scale(self, index: Rows | None = None) -> Tensor:
        """Inverse norms of some tokens, or all, ``(m, 1)``."""
        scale = self.inverse_norm if index is None else self.inverse_norm[index]
        return scale.unsqueeze(-1)

    def get_directions(self, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Unit vectors of some tokens, or all, ``(m, d)`` float32."""
        if index is None:
            return self.tokens * self.get_scale()
        return torch.index_select(self.tokens, 0, index, out=out).mul_(self.get_scale(index))

    def snap(self, index: Rows | None = None, buffers: ScratchBuffers | None = None) -> Points:
        """Some tokens, or all, in exact form; in `buffers` until their next use."""
        if buffers is None:
            return snap(self.get_tokens(index))
        grid = self.to_grid(index, buffers)
        scratch = buffers.empty("squares", tuple(grid.shape), torch.float64)
        return Points(grid, torch.mul(grid, grid, out=scratch).sum(-1))

    def to_grid(self, index: Rows | None, buffers: ScratchBuffers) -> Tensor:
        """Some tokens, or all, on the grid of `exact.py`, until the next use of `buffers`."""
        rows = self.get_tokens(index, buffers)
        grid = buffers.empty("grid", tuple(rows.shape), torch.float64).copy_(rows)
        return round_to_grid(grid)


@dataclass(frozen=True, slots=True)
class Distinct:
    """One sample's n tokens without those that are copies of an earlier one.

    A copy is exactly as near to every prompt token as the first one, exactly as far from every
    center, and at distance 0 as soon as that is chosen. So copies take no part in a search; they
    follow by index when all remaining tokens are at distance 0.

    `first` holds the ``(m,)`` indices, ascending, of the tokens in `vectors`; `slot` tells for each
    of the n tokens where in `vectors` it, or its first copy, is.
    """

    vectors: Vectors
    first: Tensor
    slot: Tensor

    @classmethod
    def of(cls, name: str, tokens: Tensor) -> Distinct:
        """Look for copies among tokens ``(n, d)`` float32. Raise for NaN and infinity."""
        copy_of = find_first_copies(tokens)
        if copy_of is None:
            everyone = torch.arange(len(tokens))
            return cls(Vectors.of(name, tokens), everyone, everyone)
        first, slot = copy_of.unique(return_inverse=True)
        return cls(Vectors.of(name, tokens.index_select(0, first), tokens), first, slot)

    def __len__(self) -> int:
        return len(self.slot)

    @property
    def has_copies(self) -> bool:
        """Whether `vectors` has fewer than all tokens."""
        return len(self.first) < len(self.slot)


class Estimates(Protocol):
    """Estimated closeness of tokens: larger is nearer, off by at most `error`.

    Only differences of closeness have a meaning. A token's row has `width` float32 numbers.
    """

    vectors: Vectors
    error: float
    width: int
    refined_below: float
    """Finer estimates may be possible if no token is farther than this from its center."""

    @property
    def tolerance(self) -> float:
        """Two tokens whose estimates differ by no more may be in either order."""
        return 2 * self.error

    def get_rows(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Rows of some tokens, for `compare` and `estimate`."""
        ...

    def compare(self, rows: Tensor, others: Tensor, buffers: ScratchBuffers | None) -> Tensor:
        """Closeness of each pair of rows, ``(n, m)`` float32."""
        ...

    def estimate(
        self, others: Tensor, index: Rows | None = None, buffers: ScratchBuffers | None = None
    ) -> Tensor:
        """Closeness of some tokens, or all, to other rows, ``(n, m)`` float32."""
        ...

    def to_distance(self, closeness: Tensor) -> Tensor:
        """Distances, float64, that are not below the true ones if the closeness is not above."""
        ...

    def list_blocks(self, tokens: Tensor, others: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Tokens, and positions in `others`, to compare with each other to find the closest."""
        ...


class CosineEstimates(Estimates):
    """Estimated cosines of some vectors; a row is a unit vector."""

    def __init__(self, vectors: Vectors, chunk: int = tuning.CHUNK) -> None:
        self.vectors, self.chunk = vectors, chunk
        self.width = vectors.width
        self.error = bound_error(vectors.width, chunk)
        self.refined_below = tuning.LOCAL_DISTANCE

    def get_rows(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """Unit vectors of some tokens."""
        return self.vectors.get_directions(index, out)

    def compare(self, rows: Tensor, others: Tensor, buffers: ScratchBuffers | None) -> Tensor:
        """Products of each pair of rows, as precise as the error bound assumes."""
        return multiply(rows, others, buffers, self.chunk)

    def estimate(
        self, others: Tensor, index: Rows | None = None, buffers: ScratchBuffers | None = None
    ) -> Tensor:
        """Cosines of some tokens, or all, with other rows."""
        tokens = self.vectors.get_tokens(index, buffers)
        return multiply(tokens, others, buffers, self.chunk).mul_(self.vectors.get_scale(index))

    def to_distance(self, closeness: Tensor) -> Tensor:
        """One minus the cosine."""
        return 1.0 + ROUNDING - closeness.double()

    def list_blocks(self, tokens: Tensor, others: Tensor) -> list[tuple[Tensor, Tensor]]:
        """All of them."""
        return [(tokens, torch.arange(len(others)))]


def bound_error(dimension: int, chunk: int, norm_chunk: int = tuning.NORM_CHUNK) -> float:
    """How far an estimate can be from the exact cosine.

    In units of float32 round-off: one per coordinate for the products inside a chunk, one per
    chunk for adding these up, half a (smaller) chunk for each of the two norms, sqrt(d) for
    snapping both tokens to the grid, and a little for the last few roundings.
    """
    inside, between = min(chunk, dimension), dimension / chunk
    norms, grid = min(norm_chunk, dimension), math.sqrt(dimension)
    return (inside + between + norms + grid + 32) * UNIT_ROUNDOFF


def scale_to_one(tokens: Tensor) -> Tensor:
    """Bring every norm into [1/2, 1) by a power of two, which changes no direction."""
    rows = tokens.double()
    exponent = torch.frexp(torch.linalg.vector_norm(rows, dim=-1, keepdim=True)).exponent
    return torch.ldexp(rows, -exponent).float()


def measure_norms(tokens: Tensor, chunk: int = tuning.NORM_CHUNK) -> Tensor:
    """Lengths of tokens ``(..., d)``, float64, as precise as the error bound assumes."""
    whole = tokens.shape[-1] // chunk * chunk
    chunks = tokens[..., :whole].unflatten(-1, (-1, chunk))
    parts = [chunks, tokens[..., whole:].unsqueeze(-2)]
    dtype = torch.promote_types(tokens.dtype, torch.float32)
    norms = [torch.linalg.vector_norm(part, dim=-1, dtype=dtype) for part in parts]
    return torch.cat(norms, dim=-1).double().square_().sum(-1).sqrt_()


def multiply(
    rows: Tensor, others: Tensor, buffers: ScratchBuffers | None, chunk: int = tuning.CHUNK
) -> Tensor:
    """``rows @ others.T``, summed chunk by chunk to keep the error bound small.

    Libraries are made for large products: a few dozen rows go through all chunks in one call, and
    with few directions these come first.
    """
    if not _float32_is_float32():
        return (rows.double() @ others.double().T).float()
    few = len(others) < tuning.FEW_DIRECTIONS
    if 0 < len(rows) * len(others) <= tuning.SMALL_PRODUCT and rows.shape[-1] % chunk == 0:
        if len(rows) <= tuning.SMALL_PRODUCT_ROWS:
            return _multiply_small(rows, others, chunk)
        if few:
            return _multiply_small(others, rows, chunk).T
    buffers = ScratchBuffers() if buffers is None else buffers
    if few:
        return _multiply_by_chunks(others, rows, buffers, chunk).T
    return _multiply_by_chunks(rows, others, buffers, chunk)


def _multiply_small(first: Tensor, second: Tensor, chunk: int) -> Tensor:
    left, right = (factor.unflatten(-1, (-1, chunk)) for factor in (first, second))
    return torch.bmm(left.transpose(0, 1), right.permute(1, 2, 0)).sum(0)


def _multiply_by_chunks(
    first: Tensor, second: Tensor, buffers: ScratchBuffers, chunk: int
) -> Tensor:
    shape = (len(first), len(second))
    total, part = (buffers.empty(name, shape, torch.float32) for name in ("total", "part"))

    def multiply_rows(some: slice) -> None:
        _sum_chunks(first[some], second, total[some], part[some], chunk)

    def multiply_columns(some: slice) -> None:
        _sum_chunks(first, second[some], total[:, some], part[:, some], chunk)

    threads = count_threads(total.numel() * first.shape[-1])
    run_in_pieces(multiply_columns if shape[0] < shape[1] else multiply_rows, max(shape), threads)
    return total


def _sum_chunks(first: Tensor, second: Tensor, total: Tensor, part: Tensor, chunk: int) -> None:
    """``first @ second.T`` into `total`; `part` has its shape."""
    chunks = zip(first.split(chunk, dim=-1), second.split(chunk, dim=-1), strict=True)
    for number, (left, right) in enumerate(chunks):
        torch.mm(left, right.T, out=part if number else total)
        if number:
            total += part


def _float32_is_float32() -> bool:
    """Whether float32 products on the CPU are computed in float32, not in bfloat16 or TF32."""
    matmul = getattr(torch.backends.mkldnn, "matmul", None)
    return getattr(matmul, "fp32_precision", "none") in {"none", "ieee"}


def find_first_copies(tokens: Tensor) -> Tensor | None:
    """For each token the first one that it is a copy of, often itself; None if all differ.

    ``(n,)`` int64. Copies have equal marks (a few coordinates), so only neighbors in the order of
    marks are compared. Should different tokens with the same mark lie between two copies, these
    count as different, which only costs time. Zero tokens are not copies: their distance is 1.
    """
    marks, order = _mark_tokens(tokens).sort(stable=True)
    alike = marks.diff() == 0
    if not alike.any():
        return None
    pairs = alike.nonzero().squeeze(-1)
    if not _are_repeated(tokens, order[pairs], order[pairs + 1]):
        blocks = pairs.split(tuning.COPY_BLOCK)
        same = torch.cat([_compare_with_next(tokens, order, block) for block in blocks])
        pairs = pairs[same]
    no_mark = pairs[marks[pairs] == 0]
    if len(no_mark):
        zero = no_mark[~tokens[order[no_mark]].any(-1)]
        pairs = pairs[~torch.isin(pairs, zero)]
    if len(pairs) == 0:
        return None
    # Number the runs of copies in order of marks; the first token of a run has the lowest index.
    begins = torch.ones(len(order), dtype=torch.bool).index_fill_(0, pairs + 1, False)
    run = begins.cumsum(0) - 1
    first = torch.empty_like(order)
    first[order] = order[begins.nonzero().squeeze(-1)[run]]
    return first


def _are_repeated(tokens: Tensor, first: Tensor, second: Tensor) -> bool:
    """Whether the pairs are all copies, and consecutive: equal frames, or a blank page.

    This gathers nothing, which takes a third of the time.
    """
    begin, step = int(first.amin()), int(second[0] - first[0])
    end = begin + len(first)
    if int(first.amax()) != end - 1 or not (second - first).eq(step).all():
        return False
    bits = _view_bits(tokens)
    return torch.equal(bits[begin:end], bits[begin + step : end + step])


def _compare_with_next(tokens: Tensor, order: Tensor, pairs: Tensor) -> Tensor:
    """Whether tokens at some positions of `order` are the same as the next, ``(pairs,)`` bool."""
    # In a run of copies a token is the next of one and has a next: it is read once.
    positions, where = torch.cat([pairs, pairs + 1]).unique(return_inverse=True)
    shape = (len(positions), tokens.shape[-1])
    rows = ScratchBuffers.of_this_thread("top").empty("rows", shape, torch.float32)
    bits = _view_bits(torch.index_select(tokens, 0, order[positions], out=rows))
    same = bits[1:] == bits[:-1]
    # Eight at a time takes a third of the time.
    eight = same.shape[1] % 8 == 0
    equal = same.view(torch.int64).amin(-1) == _EIGHT_TRUE if eight else same.all(-1)
    return equal[where[: len(pairs)]]


def _view_bits(rows: Tensor) -> Tensor:
    """The same numbers as integers, two in one if possible."""
    even = rows.shape[1] % 2 == 0 and rows.stride(0) % 2 == 0 and rows.storage_offset() % 2 == 0
    return rows.view(torch.int64 if even and rows.stride(1) == 1 else torch.int32)


def _mark_tokens(tokens: Tensor) -> Tensor:
    """A number for each token, the same for copies and rarely for others, ``(n,)`` float64."""
    width = tokens.shape[-1]
    mark = torch.zeros(len(tokens), dtype=torch.float64)
    for column in range(0, width, max(1, width // tuning.MARK_COLUMNS)):
        mark = mark * math.e + tokens[:, column]
    return mark
