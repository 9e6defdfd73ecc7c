"""The row of tokens that goes through a tower's blocks, while some of them are merged.

Its tokens have two orders: that of the row, in which tokens that attend to each other lie side by
side, and that of the method, in which it gave them: set by set, crop by crop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tokencover.pruning.vision.crop_sets import CropSet


@dataclass(frozen=True, slots=True)
class Row:
    """Which tokens there are, and which of the first ones each stands for.

    Attributes
    ----------
    sets : tuple of CropSet
        The crops, and what a method merges in them.
    groups : tuple of Tensor
        For each set ``(c, units)`` int64: which of those there are stands for each first one.
    counts : tuple of int
        For each set, how many class tokens and squares a crop has.
    places : Tensor
        ``(m,)`` int64, where each token, in the order of the method, lies in the row.
    """

    sets: tuple[CropSet, ...]
    groups: tuple[Tensor, ...]
    counts: tuple[int, ...]
    places: Tensor

    def cut(self, values: Tensor) -> list[Tensor]:
        """What the tokens of the row have, ``(m, ...)``, as ``(c, t, ...)`` for each set."""
        return self.split(values[self.places.to(values.device)])

    def split(self, values: Tensor) -> list[Tensor]:
        """The same, of values in the order of the method."""
        parts = values.split([len(each.places) * count for each, count in self._lengths()])
        return [
            part.unflatten(0, (len(each.places), -1))
            for part, each in zip(parts, self.sets, strict=True)
        ]

    def order(self, values: Sequence[Tensor]) -> Tensor:
        """Undo `cut`: from ``(c, t, ...)`` for each set to ``(m, ...)``."""
        flat = torch.cat([each.flatten(0, 1) for each in values])
        return flat[self.places.argsort().to(flat.device)]

    def merge(self, groups: Sequence[Tensor], counts: Sequence[int]) -> Row:
        """The row after its units became part of others, now in the order of the method.

        Parameters
        ----------
        groups : sequence of Tensor
            For each set ``(c, count)`` int64, the new unit that each becomes part of.
        counts : sequence of int
            How many units a crop has now.
        """
        members = tuple(
            new.to(old.device).gather(1, old) for new, old in zip(groups, self.groups, strict=True)
        )
        merged = replace(self, groups=members, counts=tuple(counts))
        total = sum(len(each.places) * count for each, count in merged._lengths())
        return replace(merged, places=torch.arange(total, device=self.places.device))

    def count_members(self) -> list[Tensor]:
        """For each set ``(c, count)`` int64, for how many first units each one stands."""
        return [
            count_members(groups, count)
            for groups, count in zip(self.groups, self.counts, strict=True)
        ]

    def weigh_tokens(self) -> Tensor:
        """``(m,)`` int64, for how many first tokens each token of the row stands."""
        sizes = self.count_members()
        return self.order(
            [each.squares.repeat(size) for each, size in zip(self.sets, sizes, strict=True)]
        )

    def find_homes(self) -> Tensor:
        """``(m,)`` int64, where the first member of each token lay, in the order of the method."""
        homes = []
        for each, groups, count in zip(self.sets, self.groups, self.counts, strict=True):
            units = torch.arange(groups.shape[1], device=groups.device).expand_as(groups)
            unset = groups.new_full((len(groups), count), groups.shape[1])
            first = unset.scatter_reduce(1, groups, units, "amin")
            homes.append(each.places.gather(1, each.squares.find_tokens(first)).flatten())
        return torch.cat(homes)

    def find_sources(self) -> Tensor:
        """``(first tokens,)`` int64, the place in the row of what stands for each of them."""
        found = self.places.new_empty(sum(each.places.numel() for each in self.sets))
        start = 0
        for (each, tokens), groups in zip(self._lengths(), self.groups, strict=True):
            crops = torch.arange(len(groups), device=groups.device).unsqueeze(-1)
            own = start + crops * tokens + each.squares.find_tokens(groups)
            found[each.places.flatten()] = self.places[own.flatten()]
            start += len(groups) * tokens
        return found

    def spread(self, states: Tensor) -> Tensor:
        """Copy the states of the row, ``(..., w)``, to all the first tokens they stand for."""
        flat = states.flatten(0, -2)[self.find_sources().to(states.device)]
        return reshape_like(flat, states)

    def average(self, values: Tensor) -> Tensor:
        """From values of the first tokens, ``(first, w)``, to means over members, ``(m, w)``."""
        sources = self.find_sources().to(values.device)
        # By segments: scattered sums depend on the order of threads.
        lengths = torch.bincount(sources, minlength=len(self.places))
        ordered = values[sources.argsort(stable=True)].float()
        means: Tensor = torch.segment_reduce(ordered, "mean", lengths=lengths, axis=0)
        return means.to(values.dtype)

    def number_segments(self, ends: Tensor) -> Tensor:
        """``(m,)`` int64, the segment in which each token's first member lay, method's order.

        Parameters
        ----------
        ends : Tensor
            ``(s + 1,)``, cumulated lengths of the segments of all first tokens, from 0 on.
        """
        homes = self.find_homes()
        return torch.searchsorted(ends[1:].to(homes), homes, right=True)

    def arrange(self, segments: Tensor) -> Row:
        """The row with tokens of a segment side by side; segments in the order of the method."""
        return replace(self, places=segments.argsort(stable=True).argsort())

    def _lengths(self) -> list[tuple[CropSet, int]]:
        """Each set, and how many tokens a crop of it has."""
        return [
            (each, each.squares.count_tokens(count))
            for each, count in zip(self.sets, self.counts, strict=True)
        ]


def begin_row(sets: Sequence[CropSet], device: torch.device) -> Row:
    """The row before anything is merged."""
    sets = [replace(each, places=each.places.to(device)) for each in sets]
    groups = tuple(
        torch.arange(each.squares.units, device=device).expand(len(each.places), -1)
        for each in sets
    )
    counts = tuple(each.squares.units for each in sets)
    places = torch.cat([each.places.flatten() for each in sets])
    return Row(tuple(sets), groups, counts, places)


def reshape_like(flat: Tensor, states: Tensor) -> Tensor:
    """From ``(m, d)`` to a row, or crops side by side, as the states have them."""
    found: Tensor = flat.unflatten(0, (*states.shape[:-2], -1))
    return found


def count_members(groups: Tensor, count: int) -> Tensor:
    """How many of the tokens ``(c, n)`` are in each group, ``(c, count)`` int64."""
    return groups.new_zeros(len(groups), count).scatter_add(1, groups, torch.ones_like(groups))
