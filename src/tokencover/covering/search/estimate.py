"""Fast float32 cosines with a proven error, to find the few pairs worth an exact look.

Exact arithmetic (`exact.py`) reads each token in float64. Most tokens never matter: a float32
estimate already shows that they are too far, or not far enough. `Cloud` gives such estimates and
`Cloud.error`, a bound that holds for *any* order of summation. So a search that keeps every pair
within twice the error of a threshold, and decides among those exactly, finds the exact answer.

The cosine to the nearest centre can only grow when centres are added: the cosine to the nearest of
the starting centres bounds it for ever. So every token is compared with those, once, by estimates
(`Bounds`), and with the centres added since (`Centers`) only where that is asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tokencover.covering.checks import check_finite
from tokencover.covering.exact import Points, round_to_grid, snap
from tokencover.covering.search.thread_use import count_threads, do_in_pieces
from tokencover.covering.search.workspace import Workspace

_UNIT_ROUNDOFF = 2.0**-24
CHUNK = 128
"""Products are summed over this many coordinates at a time: the bound grows with the chunk, and
smaller ones would take longer."""
_NORM_CHUNK = 64
_SAFE_NORM = 1e15
"""Between 1 / this and this, squares and products neither overflow nor vanish in float32."""
_SMALL_PRODUCT, _FEW_ROWS, _FEW_DIRECTIONS = 2**14, 192, 24
"""How many cosines, rows and directions are few."""
_REFRESHED_AT_ONCE = 4096
"""Tokens compared with new centres at a time."""
ROUNDING = 1e-6
"""More than float32 loses when the error is taken off an estimate."""

Rows = Tensor | slice
"""Some tokens: their indices, or those that lie side by side."""


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
    chunk : int
        Over how many coordinates products are summed at a time.
    """

    tokens: Tensor
    inverse_norm: Tensor
    error: float
    chunk: int = field(default=CHUNK, kw_only=True)

    @property
    def width(self) -> int:
        """The dimension d."""
        return self.tokens.shape[1]

    @property
    def doubt(self) -> float:
        """Cosines whose estimates differ by no more may be in either order."""
        return 2 * self.error

    @classmethod
    def of(
        cls, name: str, tokens: Tensor, whole: Tensor | None = None, chunk: int = CHUNK
    ) -> Cloud:
        """Measure the tokens (``(n, d)`` float32) once; NaN and infinity are refused.

        If they are some of a `whole`, the place that is told is the one there.
        """
        norm = measure_norms(tokens)
        safe = (norm > 1 / _SAFE_NORM) & (norm < _SAFE_NORM)
        if tokens[~safe].any():  # more than zero rows
            check_finite(name, tokens if whole is None else whole)
            tokens = scale_to_one(tokens)
            norm = measure_norms(tokens)
        inverse = torch.where(norm > 0, 1 / norm, 0.0).float()
        return cls(tokens, inverse, bound_error(tokens.shape[-1], chunk), chunk=chunk)

    def __len__(self) -> int:
        return len(self.tokens)

    def get_whole(self) -> Cloud:
        """The tokens as they are, for clouds that see them in another way."""
        return self

    def find_directions(self, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Unit vectors of some tokens, or of all, ``(m, d)`` float32."""
        if index is None:
            return self.tokens * self._take_scale(index)
        return torch.index_select(self.tokens, 0, index, out=out).mul_(self._take_scale(index))

    def estimate_cosines(
        self, directions: Tensor, index: Rows | None = None, space: Workspace | None = None
    ) -> Tensor:
        """Estimated cosine of some of the tokens, or all, with unit vectors, ``(n, m)`` float32."""
        rows = self._take_rows(index, space)
        return self.multiply(rows, directions, space).mul_(self._take_scale(index))

    def multiply(self, rows: Tensor, directions: Tensor, space: Workspace | None) -> Tensor:
        """``rows @ directions.T``, as precise as the error bound assumes."""
        return _multiply(rows, directions, space, self.chunk)

    def compare(self, rows: Tensor, directions: Tensor, space: Workspace | None = None) -> Tensor:
        """Estimated cosine of each pair of what `find_directions` gave, ``(n, m)`` float32."""
        return self.multiply(rows, directions, space)

    def snap(self, index: Rows | None = None, space: Workspace | None = None) -> Points:
        """Some tokens, or all, in exact form; if in a `space`, until its next use."""
        if space is None:
            return snap(self._take_rows(index))
        grid = self.find_grid(index, space)
        scratch = space.empty("squares", tuple(grid.shape), torch.float64)
        return Points(grid, torch.mul(grid, grid, out=scratch).sum(-1))

    def find_grid(self, index: Rows | None, space: Workspace) -> Tensor:
        """Some tokens, or all, on the grid of `exact.py`, until the next use of the `space`."""
        rows = self._take_rows(index, space)
        grid = space.empty("grid", tuple(rows.shape), torch.float64).copy_(rows)
        return round_to_grid(grid)

    def _take_rows(self, index: Rows | None, space: Workspace | None = None) -> Tensor:
        if index is None or isinstance(index, slice):
            return self.tokens if index is None else self.tokens[index]
        shape = (len(index), self.width)
        out = None if space is None else space.empty("rows", shape, torch.float32)
        # several times quicker than indexing with brackets
        return torch.index_select(self.tokens, 0, index, out=out)

    def _take_scale(self, index: Rows | None) -> Tensor:
        scale = self.inverse_norm if index is None else self.inverse_norm[index]
        return scale.unsqueeze(-1)


def bound_error(dimension: int, chunk: int = CHUNK, norm_chunk: int = _NORM_CHUNK) -> float:
    """How far an estimate can be from the exact cosine.

    In units of float32 round-off: one per coordinate for the products inside a chunk, one per
    chunk for adding these up, half a (smaller) chunk for each of the two norms, sqrt(d) for
    snapping both tokens to the grid, and a little for the last few roundings.
    """
    inside, between = min(chunk, dimension), dimension / chunk
    norms, grid = min(norm_chunk, dimension), math.sqrt(dimension)
    return (inside + between + norms + grid + 32) * _UNIT_ROUNDOFF


def scale_to_one(tokens: Tensor) -> Tensor:
    """Bring every norm into [1/2, 1) by a power of two, which changes no direction."""
    rows = tokens.double()
    exponent = torch.frexp(torch.linalg.vector_norm(rows, dim=-1, keepdim=True)).exponent
    return torch.ldexp(rows, -exponent).float()


def measure_norms(tokens: Tensor, chunk: int = _NORM_CHUNK) -> Tensor:
    """Lengths of tokens ``(..., d)``, float64, as precise as the error bound assumes."""
    whole = tokens.shape[-1] // chunk * chunk
    chunks = tokens[..., :whole].unflatten(-1, (-1, chunk))
    parts = [chunks, tokens[..., whole:].unsqueeze(-2)]
    dtype = torch.promote_types(tokens.dtype, torch.float32)
    norms = [torch.linalg.vector_norm(part, dim=-1, dtype=dtype) for part in parts]
    return torch.cat(norms, dim=-1).double().square_().sum(-1).sqrt_()


def _multiply(
    rows: Tensor, directions: Tensor, space: Workspace | None, chunk: int = CHUNK
) -> Tensor:
    """``rows @ directions.T``, summed chunk by chunk to keep the error bound small.

    Libraries are made for large products: a few dozen rows go through all chunks in one call, and
    with few directions these come first, which takes half the time.
    """
    if not _float32_is_float32():
        return (rows.double() @ directions.double().T).float()
    numbers = len(rows) * len(directions)
    if 0 < numbers <= _SMALL_PRODUCT and rows.shape[-1] % chunk == 0:
        if len(rows) <= _FEW_ROWS:
            return _multiply_small(rows, directions, chunk)
        if len(directions) < _FEW_DIRECTIONS:
            return _multiply_small(directions, rows, chunk).T
    space = Workspace() if space is None else space
    if len(directions) < _FEW_DIRECTIONS:
        return _multiply_by_chunks(directions, rows, space, chunk).T
    return _multiply_by_chunks(rows, directions, space, chunk)


def _multiply_small(first: Tensor, second: Tensor, chunk: int) -> Tensor:
    left, right = (each.unflatten(-1, (-1, chunk)) for each in (first, second))
    return torch.bmm(left.transpose(0, 1), right.permute(1, 2, 0)).sum(0)


def _multiply_by_chunks(first: Tensor, second: Tensor, space: Workspace, chunk: int) -> Tensor:
    shape = (len(first), len(second))
    total, part = (space.empty(name, shape, torch.float32) for name in ("total", "part"))

    def multiply_rows(some: slice) -> None:
        _sum_chunks(first[some], second, total[some], part[some], chunk)

    def multiply_columns(some: slice) -> None:
        _sum_chunks(first, second[some], total[:, some], part[:, some], chunk)

    threads = count_threads(total.numel() * first.shape[-1])
    do_in_pieces(multiply_columns if shape[0] < shape[1] else multiply_rows, max(shape), threads)
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


class Centers:
    """Centres of one sample, in order of choice. Only one of a thread's may be in use at a time.

    Parameters
    ----------
    cloud : Cloud
        All tokens of the sample.
    tokens : Tensor
        The first centres, as indices, int64.
    room : int
        How many there may be in the end.
    """

    def __init__(self, cloud: Cloud, tokens: Tensor, room: int) -> None:
        self._cloud = cloud
        self._count = 0
        self._tokens = torch.empty(room, dtype=torch.int64)
        space = Workspace.of_this_thread("centers")
        self._directions = space.empty("directions", (room, cloud.width), torch.float32)
        self.add(tokens)

    def __len__(self) -> int:
        return self._count

    @property
    def tokens(self) -> Tensor:
        """Which tokens they are, ``(centres,)`` int64."""
        return self._tokens[: self._count]

    @property
    def directions(self) -> Tensor:
        """Their unit vectors, ``(centres, d)`` float32."""
        return self._directions[: self._count]

    def add(self, tokens: Tensor) -> None:
        """Append some tokens."""
        where = slice(self._count, self._count + len(tokens))
        self._tokens[where] = tokens
        self._cloud.find_directions(tokens, out=self._directions[where])
        self._count = where.stop

    def cut(self, count: int) -> None:
        """Forget all but the first `count`."""
        self._count = count


class Bounds:
    """Lower bounds on the cosine of each token to its nearest centre, inf for a centre.

    Parameters
    ----------
    cloud : Cloud
        The ``n`` tokens of one sample.
    centers : Centers
        At least one; those that are there now are the starting centres.
    """

    def __init__(self, cloud: Cloud, centers: Centers) -> None:
        self._cloud, self._centers = cloud, centers
        self._space, space = (Workspace.of_this_thread(name) for name in ("top", "start"))
        self._to_start = cloud.estimate_cosines(centers.directions, space=space)
        self._nearest = self._to_start.amax(-1)
        self._compared = len(centers)
        self._bound = self._nearest - cloud.error
        self._bound[centers.tokens] = math.inf

    def find_smallest(self, size: int) -> Tensor:
        """The tokens with the smallest bounds, ascending; fewer than `size` if fewer are left."""
        size = min(size, len(self._bound) - len(self._centers))
        return self._bound.topk(size, largest=False).indices.sort().values

    def estimate_cosines(self, tokens: Rows) -> Tensor:
        """Estimated cosines of some tokens to all centres, ``(tokens, centres)`` float32."""
        to_start = self._to_start[tokens]
        return torch.cat([to_start, self._estimate_from(to_start.shape[1], tokens)], dim=1)

    def estimate_nearest(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Estimated cosine of some tokens to the nearest centre, ``(tokens,)`` float32.

        `rows` are the tokens' directions, for those who have them.
        """
        nearest = self._nearest.index_select(0, tokens)
        if self._compared == len(self._centers):
            return nearest
        rows = self._cloud.find_directions(tokens) if rows is None else rows
        added = self._centers.directions[self._compared :]
        return torch.maximum(nearest, self._cloud.compare(rows, added, self._space).amax(-1))

    def find_rivals(self) -> Tensor:
        """All tokens that may be the farthest, ascending."""
        smallest = self.estimate_nearest(self.find_smallest(1)) + self._cloud.error
        tokens = (self._bound <= smallest).nonzero().squeeze(-1)
        nearest = self.estimate_nearest(tokens)
        self.renew(tokens, nearest)
        return tokens[nearest <= nearest.amin() + self._cloud.doubt]

    def find_near_places(self, tokens: Tensor, enough: float) -> Tensor:
        """For each token the place of a centre that is near, ``(tokens,)`` int64.

        A starting centre, where one's cosine is `enough`; else the nearest of the others.
        """
        started = self._to_start.shape[1]
        cosine, place = self._to_start[tokens].max(-1)
        far = (cosine < enough).nonzero().squeeze(-1)
        if len(far) and len(self._centers) > started:
            later = self._estimate_from(started, tokens[far]).argmax(-1)
            place[far] = later + started
        return place

    def compare_all(self, places: Tensor) -> Tensor:
        """Estimated cosines of all tokens to the centres at some `places`, ascending."""
        started = self._to_start.shape[1]
        later = self._centers.directions[places[places >= started]]
        to_later = self._cloud.estimate_cosines(later, space=self._space)
        return torch.cat([self._to_start[:, places[places < started]], to_later], dim=1)

    def mark_possible_nearest(self, tokens: Rows) -> Tensor:
        """Which centres may be nearest to which tokens, ``(tokens, centres)`` bool."""
        cosines = self.estimate_cosines(tokens)
        return cosines >= cosines.amax(-1, keepdim=True) - self._cloud.doubt

    def find_largest_distances(self) -> Tensor:
        """What no token's distance to the nearest centre is above, ``(n,)`` float64."""
        return 1.0 + ROUNDING - self._bound.double()

    @property
    def is_fresh(self) -> bool:
        """Whether all tokens have been compared with all centres."""
        return self._compared == len(self._centers)

    def refresh(self) -> None:
        """Compare all tokens with the centres that were added since the last time."""
        for begin in range(0, len(self._bound), _REFRESHED_AT_ONCE):
            some = slice(begin, begin + _REFRESHED_AT_ONCE)
            newest = self._estimate_from(self._compared, some).amax(-1)
            torch.maximum(self._nearest[some], newest, out=self._nearest[some])
        self._compared = len(self._centers)
        self._bound = (self._nearest - self._cloud.error).index_fill_(
            0, self._centers.tokens, math.inf
        )

    def renew(self, tokens: Tensor, nearest: Tensor) -> None:
        """Set the bounds of some tokens by such an estimate."""
        self._bound[tokens] = (nearest - self._cloud.error).float()

    def find_smallest_without(self, tokens: Tensor) -> float:
        """The smallest bound of all other tokens."""
        others = self._bound.index_fill(0, tokens, math.inf)
        return float(others.amin())

    def copy(self) -> tuple[Tensor, Tensor, int]:
        """For `restore`."""
        return self._bound.clone(), self._nearest.clone(), self._compared

    def restore(self, copy: tuple[Tensor, Tensor, int]) -> None:
        """Undo what was done since, but for the centres of today."""
        bound, self._nearest, self._compared = copy
        self._bound = bound.index_fill(0, self._centers.tokens, math.inf)

    def _estimate_from(self, first: int, tokens: Rows) -> Tensor:
        """Estimated cosines of some tokens to the centres from the `first` on."""
        added = self._centers.directions[first:]
        return self._cloud.estimate_cosines(added, tokens, self._space)
