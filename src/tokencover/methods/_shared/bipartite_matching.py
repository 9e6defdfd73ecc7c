"""Bipartite soft matching: tokens at even places look for their like among those at odd places.

Pure tensor code, written from the paper (Token Merging, ICLR 2023, arXiv 2210.09461, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tokencover.covering import keep_precision, rank_ascending, rank_descending, select_largest


@dataclass(frozen=True, slots=True)
class Matching:
    """Which tokens are merged into which others; alike for all crops in number.

    Attributes
    ----------
    kept : Tensor
        ``(c, m)`` int64, the tokens that stay, in their new order.
    merged : Tensor
        ``(c, r)`` int64, the tokens that do not.
    into : Tensor
        ``(c, r)`` int64, for each of them the place in `kept` of the token it is merged into.
    """

    kept: Tensor
    merged: Tensor
    into: Tensor

    @property
    def groups(self) -> Tensor:
        """``(c, m + r)`` int64, the new token that each token becomes part of."""
        crops, count = self.kept.shape
        groups = self.kept.new_empty(crops, count + self.merged.shape[1])
        places = torch.arange(count, device=groups.device).expand(crops, -1)
        return groups.scatter(1, self.kept, places).scatter(1, self.merged, self.into)

    def average(self, values: Tensor, sizes: Tensor) -> Tensor:
        """Means over the members of each new token, weighted by their sizes.

        Parameters
        ----------
        values : Tensor
            ``(c, n, w)``; summed in float32 at least, and returned in their own type.
        sizes : Tensor
            ``(c, n)``.
        """
        exact = torch.promote_types(values.dtype, torch.float32)
        # A product with zeros and ones, because scattered sums depend on the order of threads.
        joins = functional.one_hot(self.into, self.kept.shape[1]).transpose(1, 2).to(exact)
        parts = []
        for index in (self.kept, self.merged):
            weights = sizes.gather(1, index).unsqueeze(-1).to(exact)
            parts.append((take_rows(values, index).to(exact).mul_(weights), weights))
        (sums, counts), (more, added) = parts
        with torch.autocast(values.device.type, enabled=False):
            # In place: fresh memory of that size takes longer than the sums.
            sums.baddbmm_(joins, more).div_(torch.baddbmm(counts, joins, added))
        return sums.to(values.dtype)


def match_pairs(metric: Tensor, remove: int, protected: int = 0) -> Matching:
    """Merge the `remove` most similar pairs of tokens at even and odd places.

    A are the tokens at even places, B those at odd places. Each token of A points at the most
    similar one of B; the tokens of A that are most similar to theirs are merged into them. Several
    may be merged into one. The new order is that of A without the merged, then B.

    Parameters
    ----------
    metric : Tensor
        ``(c, n, w)``, compared by cosine in float32.
    remove : int
        r, at most half of the tokens that are not protected.
    protected : int
        How many tokens at the beginning are neither merged nor merged into; they stay first.
    """
    crops, count, _ = metric.shape
    with keep_precision(metric.device):
        unit = functional.normalize(metric.float(), dim=-1)
        similarity = unit[:, ::2] @ unit[:, 1::2].transpose(1, 2)
    similarity[:, : (protected + 1) // 2] = -torch.inf
    similarity[:, :, : protected // 2] = -torch.inf
    partner = select_largest(similarity)
    sources = rank_descending(similarity.amax(-1))[:, :remove]
    merged = 2 * sources

    places = torch.arange(count, device=metric.device)
    turn = torch.where(places < protected, 0, 1 + places % 2).expand(crops, -1)
    turn = turn.scatter(1, merged, 3)
    order = rank_ascending(turn)
    new_place = torch.empty_like(order).scatter(1, order, places.expand(crops, -1))
    into = new_place.gather(1, 2 * partner.gather(1, sources) + 1)
    return Matching(order[:, : count - remove], merged, into)


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """Rows of each crop: ``(c, n, w)`` and ``(c, k)`` give ``(c, k, w)``."""
    crops, count, _ = values.shape
    first = torch.arange(0, crops * count, count, device=index.device).unsqueeze(-1)
    # Whole rows: several times quicker than a gather of their numbers.
    rows = values.flatten(0, 1).index_select(0, (index + first).flatten())
    return rows.view(*index.shape, -1)
