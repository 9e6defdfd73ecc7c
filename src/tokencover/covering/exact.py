"""Cosines without rounding error, and the rule for ties.

Floating-point sums depend on their order, and the order depends on the batch size, the number of
threads and the device: two identical tokens may get two different cosines, and a rule for ties then
means nothing. So every token is first snapped to a grid on the sphere: its unit vector, times
2**24, rounded to integers (what float32 can resolve). Products of such integers, and all their
partial sums, stay below 2**53; float64 adds them *exactly*, in any order. The cosine of two snapped
tokens is therefore one well-defined number, and identical tokens have cosine 1.

**The tie rule** of the whole library: of equal values, the one with the lowest index comes first.
On blank pages, padding and copied frames many values are equal, and which of them is chosen must
not depend on a device, a batch or a library's sort. The functions in the last part of this file
decide by that rule. Only the shortlist of `search/bounds.py` has it a second time, as a heap of
(value, index) pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering import tuning

RESOLUTION = 2.0**24
"""Grid steps per unit length: the spacing of float32 numbers just below one."""


@dataclass(frozen=True, slots=True)
class Points:
    """Tokens snapped to the integer grid on the sphere; a zero token stays zero.

    `grid` is ``(..., n, d)`` float64, integers of magnitude up to 2**24, and `square` the exact
    squared length of each row, ``(..., n)`` float64.
    """

    grid: Tensor
    square: Tensor

    def __len__(self) -> int:
        return self.square.shape[-1]

    def __getitem__(self, index: slice | Tensor) -> Points:
        """Some points of an unbatched set."""
        return Points(self.grid[index], self.square[index])


def snap(tokens: Tensor) -> Points:
    """Normalise each token, ``(..., n, d)`` of any floating dtype, and snap it to the grid."""
    if tokens.device.type == "cpu" and tokens.dim() == 2 and len(tokens) > tuning.SNAP_BLOCK:
        return _snap_by_blocks(tokens)
    grid = tokens.to(torch.float64, copy=True)
    return snap_in_place(grid, torch.empty_like(grid))


def _snap_by_blocks(tokens: Tensor) -> Points:
    """The same for many tokens on a CPU, a block at a time, which stays in its cache."""
    grid = torch.empty(tokens.shape, dtype=torch.float64)
    scratch = torch.empty_like(grid[: tuning.SNAP_BLOCK])
    blocks = zip(grid.split(tuning.SNAP_BLOCK), tokens.split(tuning.SNAP_BLOCK), strict=True)
    square = [
        snap_in_place(block.copy_(rows), scratch[: len(rows)]).square for block, rows in blocks
    ]
    return Points(grid, torch.cat(square))


def snap_in_place(grid: Tensor, scratch: Tensor) -> Points:
    """As `snap`, for tokens in float64 that are overwritten; `scratch` has their shape."""
    round_to_grid(grid)
    return Points(grid, torch.mul(grid, grid, out=scratch).sum(-1))


def round_to_grid(grid: Tensor) -> Tensor:
    """As `snap_in_place`, without the squared lengths."""
    norm = torch.linalg.vector_norm(grid, dim=-1, keepdim=True)
    return grid.mul_(torch.where(norm > 0, RESOLUTION / norm, 0.0)).round_()


def cosine(first: Points, second: Points) -> Tensor:
    """Exact cosine of every pair, ``(..., n, m)`` float64; 0 where a token is zero."""
    dot = first.grid @ second.grid.mT
    # sqrt(x * x) == x in IEEE arithmetic, which makes the cosine of a token with itself exactly 1.
    squares = first.square.unsqueeze(-1) * second.square.unsqueeze(-2)
    return dot.div_(square_root(squares.clamp_(min=1.0)))


def compute_pairwise_cosines(points: Points) -> Tensor:
    """`cosine` of an unbatched set with itself, ``(n, n)``; every pair is multiplied once."""
    return _compare_pairs(points.grid, lambda rows, columns: cosine(points[rows], points[columns]))


def compute_pairwise_sq_distances(grid: Tensor) -> Tensor:
    """Squared distances of points ``(n, d)`` with integer coordinates, ``(n, n)``."""
    products = _compare_pairs(grid, lambda rows, columns: grid[rows] @ grid[columns].mT)
    square = products.diagonal().clone()
    return products.mul_(-2.0).add_(square.unsqueeze(-1)).add_(square)


def _compare_pairs(grid: Tensor, compare: Callable[[slice, slice], Tensor]) -> Tensor:
    """A symmetric comparison of all pairs, ``(n, n)``, block by block of its upper half."""
    count = len(grid)
    size = min(tuning.PAIR_BLOCK, max(tuning.SMALL_PAIR_BLOCK, count // 3))
    blocks = [slice(begin, begin + size) for begin in range(0, count, size)]
    table = grid.new_empty(count, count)
    for i, rows in enumerate(blocks):
        for columns in blocks[i:]:
            values = compare(rows, columns)
            table[rows, columns] = values
            table[columns, rows] = values.T
    return table


def square_root(values: Tensor) -> Tensor:
    """The square root of float64 values, rounded to nearest as IEEE 754 demands.

    Vector libraries may be off by one in the last digit, differently on different machines. One
    Newton step with the exact remainder corrects that: it needs only sums, products and quotients,
    which are the same everywhere. Values are from 1 to 2**980.
    """
    root = values.sqrt()
    # Halves of 26 bits each (Veltkamp), so that the parts of the square below are exact (Dekker).
    scaled = root * (2.0**27 + 1)
    high = scaled.sub_(scaled - root)
    low = root - high
    remainder = torch.addcmul(values, high, high, value=-1)
    remainder.addcmul_(high, low, value=-2).addcmul_(low, low, value=-1)
    return root.addcdiv_(remainder, root, value=0.5)


def distances(first: Points, second: Points) -> Tensor:
    """Exact cosine distance of every pair, ``(..., n, m)`` float64, never below zero."""
    return (1.0 - cosine(first, second)).clamp_(min=0.0)


def square_distance(first: Points, second: Points) -> Tensor:
    """Squared Euclidean distance of every pair of unit vectors, ``(..., n, m)`` float64."""
    sizes = (first.square > 0).double().unsqueeze(-1) + (second.square > 0).double().unsqueeze(-2)
    return sizes - 2.0 * cosine(first, second)


# Devices and precision, independent of the caller's settings.


def get_float64_device(device: torch.device) -> torch.device:
    """Get the device itself, or the CPU if the device has no float64 (Apple's MPS)."""
    return torch.device("cpu") if device.type == "mps" else device


def on_cpu(tokens: Tensor) -> bool:
    """Whether the exact arithmetic for these tokens is done on a CPU."""
    return get_float64_device(tokens.device).type == "cpu"


def to_float32(tokens: Tensor) -> Tensor:
    """Detach and convert to float32, on a device that has float64."""
    return tokens.detach().to(get_float64_device(tokens.device), torch.float32)


@contextmanager
def keep_precision(device: torch.device) -> Iterator[None]:
    """Switch off autocast to half precision, and gradients."""
    with torch.no_grad(), torch.autocast(get_float64_device(device).type, enabled=False):
        yield


# The tie rule: of equal values, the one with the lowest index comes first.


def rank_descending(values: Tensor) -> Tensor:
    """Indices ``(..., n)`` int64 of numbers or bools ``(..., n)``, largest value first."""
    return _make_comparable(values).argsort(dim=-1, descending=True, stable=True)


def rank_ascending(values: Tensor) -> Tensor:
    """As `rank_descending`, smallest value first."""
    return _make_comparable(values).argsort(dim=-1, stable=True)


def select_largest(values: Tensor) -> Tensor:
    """Index of the largest value of the last dimension, ``(...)`` int64."""
    return values.argmax(dim=-1)  # torch documents that this is the first of several


def select_smallest(values: Tensor) -> Tensor:
    """Index of the smallest value of the last dimension, ``(...)`` int64."""
    return values.argmin(dim=-1)


def first_of_largest(pairs: Iterable[tuple[float, int]]) -> int:
    """`select_largest` for (value, index) pairs in plain Python."""
    return min((-value, index) for value, index in pairs)[1]


def mark_largest(values: Tensor, count: Tensor) -> Tensor:
    """Mark the first `count` of `rank_descending` without ranking, ``(..., n)`` bool.

    `count` is ``(...)`` int64 of at least 1, perhaps above n; -inf is never marked.
    """
    count = count.unsqueeze(-1)
    ordered = values.sort(dim=-1, descending=True).values
    last_place = count.clamp(max=values.shape[-1]) - 1
    last = ordered.gather(-1, last_place.expand(*values.shape[:-1], 1))
    above = values > last
    equal = values == last
    remaining = count - above.sum(-1, keepdim=True)
    marked = above | (equal & (equal.cumsum(-1) <= remaining))
    return marked & (values > -math.inf)


def count_before(values: Tensor, index: int) -> Tensor:
    """How many values of the last dimension `rank_descending` puts before the one at `index`."""
    own = values[..., index : index + 1]
    return (values > own).sum(-1) + (values[..., :index] == own).sum(-1)


def rank_candidates(alignment: Tensor, fold: Tensor, budget: int) -> tuple[Tensor, Tensor]:
    """Rank the visual tokens that the prompt proposes (Algorithm 1, step 1).

    `alignment` are cosines ``(..., l, n)``, -inf where a token does not exist. Each prompt token
    proposes its `fold`, ``(...)`` int64, nearest visual tokens; a candidate's score is its largest
    cosine. Returns the order, ``(..., budget)``, best first, and the ``(...)`` number of
    candidates, from which on the order is meaningless.
    """
    proposed = mark_largest(alignment, fold.unsqueeze(-1)).any(-2)
    score = alignment.amax(-2).masked_fill(~proposed, -math.inf)
    return rank_descending(score)[..., :budget], proposed.sum(-1)


def _make_comparable(values: Tensor) -> Tensor:
    if values.dtype == torch.bool:
        return values.to(torch.uint8)
    # Adding zero makes -0.0 the same as 0.0 for sorts that compare bits.
    return values + 0.0 if values.is_floating_point() else values
