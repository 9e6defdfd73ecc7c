"""Tokens that lie close together, in coordinates around a centre: estimates of a finer kind.

An estimated cosine is off by some millionths whatever it is, and tokens of one cluster, or of a
blank page, differ by no more than that. But the difference of two such tokens is short, and the
error of a product shrinks with what is multiplied. With u' = u - r and v' = v - r for a centre r in
the same cluster, 1 - cos(u, v) is u'.u'/2 + v'.v'/2 - u'.v' up to the lengths of u and v, which are
1 but for the grid of `exact.py`: a hundred times closer in a cluster as wide as a hundredth.

This holds for tokens around the same centre. Those around different ones are taken to be far from
each other, which is proven before: where it is not so, there is no closer look.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokencover.covering.exact import RESOLUTION, Points
from tokencover.covering.search.estimate import (
    ROUNDING,
    Bounds,
    Centers,
    Cloud,
    Rows,
    measure_norms,
)
from tokencover.covering.search.workspace import Workspace

_UNIT_ROUNDOFF = 2.0**-24
WIDEST = 0.02
"""Distances above this are for the usual estimates."""
_JOINED = 8.0
"""Centres nearer to each other than so many times the largest distance share a neighbourhood."""
_GAIN = 4.0
"""How much smaller the error must be."""
_BLURRED = 8.0
"""Distances below so many times their error say little about how wide a neighbourhood is."""
_FAR = 4.0
"""More than any distance."""
_EXTRA = 16
"""Columns beyond the coordinates, two of which are used: a whole cache line."""
_MOVED_AT_ONCE = 32
_MANY_PAIRS = 2**14


@dataclass(frozen=True, slots=True)
class CloseCloud(Cloud):
    """The same tokens around centres. An "estimated cosine" is less by one here: minus a distance.

    Attributes
    ----------
    tokens : Tensor
        ``(n, d + _EXTRA)`` float32: differences to the centre, half their squared length, the
        number of the neighbourhood. Filled in where it is asked for.
    whole : Cloud
        The tokens as they are.
    references : Tensor
        ``(neighbourhoods, d)`` float64, on the grid: what the tokens are seen from.
    home : Tensor
        ``(n,)`` int64: each token's neighbourhood; -1 for centres that are far from all others.
    is_ready : Tensor
        ``(n,)`` bool: which rows of `tokens` are filled in.
    """

    whole: Cloud
    references: Tensor
    home: Tensor
    is_ready: Tensor

    @property
    def reach(self) -> int:
        """The dimension d."""
        return self.whole.width

    def find_directions(self, index: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        """Rows of some tokens, or of all."""
        index = torch.arange(len(self)) if index is None else index
        self.prepare(index)
        return torch.index_select(self.tokens, 0, index, out=out)

    def estimate_cosines(
        self, directions: Tensor, index: Rows | None = None, space: Workspace | None = None
    ) -> Tensor:
        """Minus the estimated distances of some tokens to others, ``(n, m)`` float32."""
        self.prepare(torch.arange(len(self))[index] if isinstance(index, slice) else index)
        return self.compare(self._take_rows(index, space), directions, space)

    def compare(self, rows: Tensor, directions: Tensor, space: Workspace | None = None) -> Tensor:
        """Minus the estimated distance of each pair of rows, ``(n, m)`` float32."""
        reach = self.reach
        near = self.multiply(rows[:, :reach], directions[:, :reach], space)
        near.sub_(rows[:, reach : reach + 1]).sub_(directions[:, reach])
        apart = rows[:, reach + 1 : reach + 2] != directions[:, reach + 1]
        return near.masked_fill_(apart, -_FAR)

    def snap(self, index: Rows | None = None, space: Workspace | None = None) -> Points:
        """As of the tokens as they are."""
        return self.whole.snap(index, space)

    def get_whole(self) -> Cloud:
        """The tokens as they are."""
        return self.whole

    def prepare(self, index: Tensor | None) -> None:
        """Fill in the rows of some tokens, or of all."""
        if index is None:
            for begin in range(0, len(self), _MOVED_AT_ONCE):
                some = slice(begin, begin + _MOVED_AT_ONCE)
                self._move(some, self.tokens[some])
            self.is_ready.fill_(True)
            return
        new = index[~self.is_ready[index]]
        if len(new) == 0:
            return
        shape = (min(len(new), _MOVED_AT_ONCE), self.width)
        rows = Workspace.of_this_thread("moved").empty("moved", shape, torch.float32)
        for some in new.split(_MOVED_AT_ONCE):
            self.tokens.index_copy_(0, some, self._move(some, rows[: len(some)]))
        self.is_ready[new] = True

    def _move(self, some: Rows, rows: Tensor) -> Tensor:
        """See some tokens from their references, into `rows`."""
        home, reach = self.home[some], self.reach
        space = Workspace.of_this_thread("moved")
        grid = self.whole.find_grid(some, space)
        seen_from = self.references
        if len(seen_from) > 1:
            out = space.empty("references", tuple(grid.shape), torch.float64)
            seen_from = torch.index_select(seen_from, 0, home.clamp(min=0), out=out)
        moved = rows[:, :reach].copy_(grid.sub_(seen_from).mul_(1 / RESOLUTION))
        rows[:, reach] = measure_norms(moved).square_().div_(2)
        rows[:, reach + 1] = home
        if home.amin() < 0:
            rows[home < 0, : reach + 1] = 0.0
        return rows


class CloseBounds(Bounds):
    """Bounds for a `CloseCloud`, at first those of the usual estimates.

    Parameters
    ----------
    cloud : CloseCloud
        The ``n`` tokens.
    centers : Centers
        Their centres.
    distance : Tensor
        ``(n,)`` float64: at least the distance of each token to the nearest centre; -inf for one.
    """

    def __init__(self, cloud: CloseCloud, centers: Centers, distance: Tensor) -> None:
        self._cloud, self._centers, self._home = cloud, centers, cloud.home
        self._space = Workspace.of_this_thread("top")
        self._nearest = torch.full((len(cloud),), -math.inf)
        self._is_known = torch.zeros(len(cloud), dtype=torch.bool)
        self._compared = len(centers)
        self._bound = -(distance * (1 + ROUNDING)).float()

    def estimate_cosines(self, tokens: Rows) -> Tensor:
        """Minus the estimated distances of some tokens to all centres."""
        return self._cloud.estimate_cosines(self._centers.directions, tokens)

    def estimate_nearest(self, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
        """Minus the estimated distance of some tokens to the nearest centre."""
        self._get_to_know(tokens[~self._is_known[tokens]])
        return super().estimate_nearest(tokens, rows)

    def find_largest_distances(self) -> Tensor:
        """What no token's distance to the nearest centre is above, ``(n,)`` float64."""
        return -self._bound.double() * (1 + ROUNDING)

    @property
    def is_fresh(self) -> bool:
        """Whether all tokens that may be the farthest have been compared with all centres."""
        return self._compared == len(self._centers) and len(self._find_rivals()) == 0

    def refresh(self) -> None:
        """Compare all known tokens with new centres, and know those that may be the farthest."""
        self._get_to_know(self._find_rivals())
        known = self._is_known.nonzero().squeeze(-1)
        nearest = super().estimate_nearest(known)
        self._compared = len(self._centers)
        self._nearest[known] = nearest
        self.renew(known, nearest)
        self._bound[self._centers.tokens] = math.inf

    def restore(self, copy: tuple[Tensor, Tensor, int]) -> None:
        """Undo what was done since, but for the centres of today."""
        super().restore(copy)
        self._is_known = self._nearest > -math.inf

    def _find_rivals(self) -> Tensor:
        """Which unknown tokens may be farther than all that are known."""
        farthest = self._bound.masked_fill(~self._is_known, math.inf).amin()
        unknown = ~self._is_known & (self._bound < math.inf)
        return ((self._bound <= farthest + self._cloud.doubt) & unknown).nonzero()[:, 0]

    def _get_to_know(self, tokens: Tensor) -> None:
        """Compare some tokens with the centres that all known ones have been compared with."""
        if len(tokens) == 0:
            return
        centers = torch.arange(self._compared)
        blocks = [(tokens, centers)]
        if len(tokens) * len(centers) > _MANY_PAIRS:  # only those of the same neighbourhood count
            home, others = self._home[tokens], self._home[self._centers.tokens[centers]]
            blocks = [(tokens[home == one], centers[others == one]) for one in home.unique()]
        for some, places in blocks:
            directions = self._centers.directions.index_select(0, places)
            nearest = self._cloud.estimate_cosines(directions, some, self._space).amax(-1)
            self._nearest[some] = nearest
        self._is_known[tokens] = True


def look_closely(
    cloud: Cloud, centers: Centers, bounds: Bounds
) -> tuple[CloseCloud, Tensor] | None:
    """See the tokens from centres near to them, if that tells more.

    Returns
    -------
    CloseCloud
        The same tokens.
    Tensor
        ``(n,)`` float64, what no token's distance to the nearest centre is above; -inf for centres.
    """
    distance = bounds.find_largest_distances().index_fill_(0, centers.tokens, -math.inf)
    widest = float(distance.amax())
    if widest > WIDEST:
        return None
    places = _choose_references(centers, bounds, distance, widest)
    home, radius = _settle(bounds.compare_all(places).double(), distance, cloud.error)
    if home is None:
        return None
    space = Workspace.of_this_thread("close")
    shape = (len(cloud), cloud.width + _EXTRA)
    close = CloseCloud(
        space.empty("tokens", shape, torch.float32),
        cloud.inverse_norm,
        0.0,
        cloud,
        cloud.snap(centers.tokens[places]).grid,
        home,
        torch.zeros(len(cloud), dtype=torch.bool),
    )
    if widest < _BLURRED * cloud.error:  # estimates cannot tell how wide it is
        close.prepare(None)
        radius = float(2 * close.tokens[:, cloud.width].amax())
    error = _bound_close_error(cloud, radius)
    return (replace(close, error=error), distance) if error * _GAIN < cloud.error else None


def _bound_close_error(cloud: Cloud, radius: float) -> float:
    """How far an estimated distance can be off; `radius` is the largest square of a difference.

    The products are those of the usual estimates, times the lengths of what is multiplied. On the
    grid a token's length is off by as much as half the diagonal of a cell. Exact distances
    themselves are rounded to float64.
    """
    off = math.sqrt(cloud.width) * _UNIT_ROUNDOFF / 2
    return 1.01 * (radius * (cloud.error + 4 * off) + 2 * off**2) + 1e-15


def _choose_references(centers: Centers, bounds: Bounds, distance: Tensor, widest: float) -> Tensor:
    """Some centres, by their places, that all tokens are near to and each other are not."""
    free = (distance > -math.inf).nonzero().squeeze(-1)
    places = bounds.find_near_places(free, 1.0 - widest).unique()
    each_other = bounds.estimate_cosines(centers.tokens[places]).index_select(1, places)
    close = each_other >= 1.0 - _JOINED * widest
    left = torch.ones(len(places), dtype=torch.bool)
    chosen = []
    while left.any():
        chosen.append(int(left.int().argmax()))
        left &= ~close[chosen[-1]]
        left[chosen[-1]] = False
    found: Tensor = places[torch.tensor(chosen)]
    return found


def _settle(cosines: Tensor, distance: Tensor, error: float) -> tuple[Tensor | None, float]:
    """Each token's neighbourhood, and how wide these are; None if they are not far from each other.

    Parameters
    ----------
    cosines : Tensor
        ``(n, neighbourhoods)`` float64, estimates.
    distance : Tensor
        ``(n,)``, the largest possible to the nearest centre; -inf for centres.
    error : float
        Of the estimates.
    """
    error += ROUNDING
    widest, home = distance.amax(), cosines.argmax(-1)
    is_center = distance == -math.inf
    own = cosines.gather(1, home.unsqueeze(-1)).squeeze(-1)
    outer = (own - error).clamp_(-1, 1).acos_().masked_fill_(is_center, 0.0)
    # The widest angle of each neighbourhood's tokens, and how near to them others may come.
    angle = torch.zeros(cosines.shape[1], dtype=torch.float64).scatter_reduce_(
        0, home, outer, "amax"
    )
    inner = (cosines + error).clamp_(-1, 1).acos_() - angle
    near = inner < (1 - widest).acos() + ROUNDING
    alone = is_center & ~near.gather(1, home.unsqueeze(-1)).squeeze(-1)
    near.scatter_(1, home.unsqueeze(-1), False)
    if near.any():
        return None, math.inf
    farthest = own.masked_fill(alone, 1.0).amin()
    return home.masked_fill(alone, -1), float(2 * (1 - farthest + error))
