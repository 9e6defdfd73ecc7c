"""How well the first centers of a nested order cover a set of tokens.

Both orders of Algorithm 1 are nested: its first j centers do not depend on how many follow. So one
run gives the covering radius of every budget up to the largest. Distances are Euclidean between
unit vectors, sqrt(2 - 2 cos); a zero token is at distance 1 from these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.covering import tuning
from tokencover.covering.checks import check_count, check_pair, check_tokens
from tokencover.covering.exact import Points, keep_precision, snap, square_distance, to_float32
from tokencover.covering.mob import farthest_points, nearest_points


@dataclass(frozen=True, slots=True)
class PromptOrder:
    """Visual tokens ranked by their best cosine with any prompt token.

    This is nearest-neighbor covering with a fold k >= Kp. `order` is ``(m,)`` int64, best first.
    ``radius[j]``, ``(m + 1,)`` float64, is the distance of the worst prompt token to its nearest
    among the first j: infinite for j = 0, and 0 everywhere without prompt tokens.
    """

    order: Tensor
    radius: Tensor


@dataclass(frozen=True, slots=True)
class FarthestOrder:
    """Tokens in farthest-point order, without a starting center: `order` is ``(m,)`` int64.

    ``radius[j]``, ``(m + 1,)`` float64, is the distance of the worst of *all* tokens to its nearest
    among the first j; infinite for j = 0. ``separation[j]`` is the smallest distance between two of
    the first j; infinite for j < 2.
    """

    order: Tensor
    radius: Tensor
    separation: Tensor


def prompt_order(visual: Tensor, prompt: Tensor, *, most: int) -> PromptOrder:
    """Rank the `most` of n visual tokens nearest to the prompt, with the radius of every prefix.

    V is ``(n, d)``, P is ``(l, d)`` and may be empty. O(n l d) for the order, O(most l d) for the
    radii.
    """
    check_pair(visual, prompt, ranks=(2,))
    most = min(check_count("most", most, 0), len(visual))
    if len(prompt) == 0:
        nothing = torch.zeros(most + 1, dtype=torch.float64, device=visual.device)
        return PromptOrder(torch.arange(most, device=visual.device), nothing)
    # With fold = most, each of the `most` best tokens is proposed by its best prompt token.
    order = nearest_points(visual, prompt, budget=most, fold=max(most, 1))
    with keep_precision(visual.device):
        squares = square_distance(snap(to_float32(prompt)), snap(to_float32(visual[order])))
        before = torch.full((len(prompt), 1), math.inf, dtype=squares.dtype, device=squares.device)
        nearest = torch.cat([before, squares], dim=1).cummin(dim=1).values
        return PromptOrder(order, _to_distance(nearest.amax(0)).to(visual.device))


def farthest_order(tokens: Tensor, *, most: int) -> FarthestOrder:
    """Order `most` of n tokens by farthest point sampling, with radius and separation of prefixes.

    O(n most d) at worst for the order of ``(n, d)``. The radii cost O(most**2 d) more, because the
    token chosen next *is* the one that is covered worst. (Not so with zero tokens, because sampling
    compares cosines; then every token is measured, O(n most d).)
    """
    check_tokens("visual", tokens)
    most = min(check_count("most", most, 1), len(tokens))
    order = farthest_points(tokens, budget=most + 1)  # one more, for the last radius
    with keep_precision(tokens.device):
        rows = to_float32(tokens)
        chosen = snap(rows[order])
        gaps = _measure_gaps(chosen)
        separation = torch.cummin(gaps, dim=0).values
        has_zero = not bool((rows != 0).any(-1).all())
        radius = (
            _measure_radius_of_all(rows, chosen[:most])
            if has_zero
            else _read_radius_of_next(gaps, most)
        )
        return FarthestOrder(
            order[:most],
            _to_distance(radius).to(tokens.device),
            _to_distance(separation[: most + 1]).to(tokens.device),
        )


def _measure_gaps(chosen: Points) -> Tensor:
    """``gaps[j]``: squared distance of the j-th choice (from 1) to those before it; inf for two."""
    count = len(chosen)
    gaps = torch.full((count + 1,), math.inf, dtype=torch.float64, device=chosen.grid.device)
    for begin in range(1, count, tuning.RADIUS_BLOCK):
        end = min(begin + tuning.RADIUS_BLOCK, count)
        squares = square_distance(chosen[begin:end], chosen[:end])
        late = torch.ones_like(squares, dtype=torch.bool).triu(begin)
        gaps[begin + 1 : end + 1] = squares.masked_fill(late, math.inf).amin(1)
    return gaps


def _read_radius_of_next(gaps: Tensor, most: int) -> Tensor:
    """The radius of the first j is the gap of choice j + 1; nothing is uncovered after the last."""
    radius = torch.zeros(most + 1, dtype=torch.float64, device=gaps.device)
    known = gaps[1 : most + 2]
    radius[: len(known)] = known
    return radius


def _measure_radius_of_all(rows: Tensor, centers: Points) -> Tensor:
    """Largest over all tokens of the smallest squared distance to the first j centers."""
    points = snap(rows)
    nearest = torch.full((len(rows), 1), math.inf, dtype=torch.float64, device=rows.device)
    radii = [nearest.amax(0)]
    for begin in range(0, len(centers), tuning.RADIUS_BLOCK):
        squares = square_distance(points, centers[begin : begin + tuning.RADIUS_BLOCK])
        running = torch.cummin(torch.cat([nearest, squares], dim=1), dim=1).values[:, 1:]
        radii.append(running.amax(0))
        nearest = running[:, -1:]
    return torch.cat(radii)


def _to_distance(square: Tensor) -> Tensor:
    return square.clamp(min=0.0).sqrt()
