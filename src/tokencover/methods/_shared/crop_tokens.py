"""Write what a method made of each crop into the sequence.

Methods that merge before the decoder hand it tokens of their own making, in an order of their own.
A sequence can only lose tokens, so theirs are written, in order, into slots that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.methods._shared.tower_crops import Crops
from tokencover.methods.base import Choice, View

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class Made:
    """Some tokens that a method made.

    Attributes
    ----------
    sources : Tensor
        ``(m,)`` int64, the visual tokens of the sample they come from, each at most once; -1 for
        one that comes from no single token.
    *states : Tensor
        ``(part of m, d)``, for the decoder; in parts, so that joining copies nothing.
    """

    sources: Tensor
    states: tuple[Tensor, ...]

    def __init__(self, sources: Tensor, *states: Tensor) -> None:
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "states", states)

    @staticmethod
    def join(parts: Sequence[Made]) -> Made:
        """One after the other."""
        sources = torch.cat([part.sources for part in parts])
        return Made(sources, *(states for part in parts for states in part.states))


@dataclass(frozen=True, slots=True)
class CropTokens:
    """What became of a crop: class tokens, patches in raster order, and merged tokens."""

    classes: Made
    patches: Made
    merged: Made


def write_tokens(
    made: dict[int, CropTokens],
    crops: Crops,
    view: View,
    fill: Sequence[int] | None = None,
    *,
    stay: bool = False,
) -> Choice:
    """Write the tokens of all crops.

    An image or a frame of a video becomes its class, patch and merged tokens. Tiles of a picture
    become the patches of all of them, in raster order of the stitched view, then their class
    tokens, then their merged ones.

    Parameters
    ----------
    made : dict
        What became of each crop of which something is left. No crop may grow.
    crops : Crops
        Where they lie.
    view : View
        The visual tokens.
    fill : sequence of int, optional
        For each sample how many tokens to keep in all; newline and class tokens that `made` does
        not hold make up the number.
    stay : bool
        Whether tokens that come from a visual token are written there, whatever the order: their
        positions are kept.
    """
    # What is not kept is not written: to copy all would cost more than the rest.
    states = torch.empty_like(view.hidden_states)
    kept, sources, details = [], [], []
    for sample, mine in enumerate(crops.members):
        sections = _group_sections(mine, made, crops)
        ordered = [_order_tokens(section, made, crops) for section in sections]
        pairs = zip(ordered, sections, strict=True)
        slots = torch.cat([_find_slots(tokens, section, crops, stay) for tokens, section in pairs])
        tokens = Made.join(ordered)
        _write(states[sample], slots.to(states.device), tokens.states)
        found = tokens.sources
        missing = 0 if fill is None else fill[sample] - len(slots)
        if missing > 0:
            spare = crops.find_fillers(sample, view)
            spare = spare[~torch.isin(spare, slots)][:missing]
            here = spare.to(states.device)
            _write(states[sample], here, [view.hidden_states[sample, here]])
            slots, found = torch.cat([slots, spare]), torch.cat([found, spare])
        places, order = slots.sort()
        kept.append(places)
        sources.append(found[order])
        details.append({"crop_budgets": [_count_tokens(made.get(crop)) for crop in mine]})
    return Choice(kept, hidden_states=states, sources=sources, details=details)


def _write(states: Tensor, slots: Tensor, parts: Sequence[Tensor]) -> None:
    """Set some states, given one part after the other."""
    for where, part in zip(slots.split([len(part) for part in parts]), parts, strict=True):
        states.index_copy_(0, where, part.to(states))


def _count_tokens(tokens: CropTokens | None) -> int:
    if tokens is None:
        return 0
    return sum(len(part.sources) for part in (tokens.classes, tokens.patches, tokens.merged))


def _group_sections(
    mine: Sequence[int], made: dict[int, CropTokens], crops: Crops
) -> list[tuple[int, ...]]:
    """The crops of a sample of which something is left, tiles of one picture together."""
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for crop in mine:
        if crop in made:
            key = crops.medium[crop], crops.frame[crop]
            found[key] = (*found.get(key, ()), crop)
    return list(found.values())


def _order_tokens(section: tuple[int, ...], made: dict[int, CropTokens], crops: Crops) -> Made:
    tokens = [made[crop] for crop in section]
    classes = Made.join([each.classes for each in tokens])
    patches = Made.join([each.patches for each in tokens])
    merged = Made.join([each.merged for each in tokens])
    if len(section) > 1:  # within a crop they are in raster order
        raster = patches.sources.argsort()
        patches = Made(patches.sources[raster], torch.cat(patches.states)[raster])
    tiled = crops.tile[section[0]]
    return Made.join([patches, classes, merged] if tiled else [classes, patches, merged])


def _find_slots(tokens: Made, section: tuple[int, ...], crops: Crops, stay: bool) -> Tensor:
    """The slots of the tokens' sources, and free ones for tokens without.

    Ascending, so that tokens have their order; or each that has a source in its own, if they stay.
    """
    own = tokens.sources[tokens.sources != NO_TOKEN]
    needed = len(tokens.sources) - len(own)
    if needed == 0:
        return own if stay else own.sort().values
    cells = crops.slot[list(section)].flatten()
    present = cells[cells >= 0]
    taken = torch.zeros(crops.view.mask.shape[1], dtype=torch.bool, device=own.device)
    free = present[~taken.index_fill_(0, own, True)[present]].sort().values
    # The first free ones for tokens that come first, the last ones for those after their sources.
    before = int((tokens.sources != NO_TOKEN).int().argmax()) if len(own) else needed
    after = needed - before
    ends = torch.cat([free[:before], free[len(free) - after :]])
    if stay:
        slots = tokens.sources.clone()
        slots[slots == NO_TOKEN] = ends
        return slots
    return torch.cat([own, ends]).sort().values
