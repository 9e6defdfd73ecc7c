"""Write the tokens that a method made of each crop, in their order, into slots that stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tokencover.methods._shared.vision_tiles import Crops
from tokencover.methods.base import Choice, View

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class NewTokens:
    """Tokens that a method made.

    `sources` ``(m,)`` int64 are the visual tokens of the sample they come from, each at most once,
    or -1; `states` are hidden states ``(part of m, d)`` in parts, so joining copies nothing.
    """

    sources: Tensor
    states: tuple[Tensor, ...]

    def __init__(self, sources: Tensor, *states: Tensor) -> None:
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "states", states)

    @staticmethod
    def join(parts: Sequence[NewTokens]) -> NewTokens:
        """Concatenate several."""
        sources = torch.cat([part.sources for part in parts])
        return NewTokens(sources, *(states for part in parts for states in part.states))


@dataclass(frozen=True, slots=True)
class CropTokens:
    """What a crop becomes: class tokens, patches in raster order, and merged tokens."""

    classes: NewTokens
    patches: NewTokens
    merged: NewTokens


def write_tokens(
    tokens_of: dict[int, CropTokens],
    crops: Crops,
    view: View,
    fill: Sequence[int] | None = None,
    *,
    stay: bool = False,
) -> Choice:
    """Write the tokens of all crops; no crop may grow.

    An image or a video frame becomes its class, patch and merged tokens; an image with tiles the
    patches of all of them, in raster order of the stitched image, then class tokens, then merged
    ones. Newline and class tokens fill a sample up to `fill` tokens. With `stay`, tokens that come
    from a visual token are written to its slot, whatever the order.
    """
    # Only kept tokens are written: copying all would cost more than the rest.
    states = torch.empty_like(view.hidden_states)
    kept, sources, details = [], [], []
    for sample, mine in enumerate(crops.members):
        sections = _group_sections(mine, tokens_of, crops)
        ordered = [_order_tokens(section, tokens_of, crops) for section in sections]
        pairs = zip(ordered, sections, strict=True)
        slots = torch.cat(
            [_assign_slots(tokens, section, crops, stay) for tokens, section in pairs]
        )
        tokens = NewTokens.join(ordered)
        _write(states[sample], slots.to(states.device), tokens.states)
        origins = tokens.sources
        missing = 0 if fill is None else fill[sample] - len(slots)
        if missing > 0:
            spare = crops.get_non_patch_tokens(sample, view)
            spare = spare[~torch.isin(spare, slots)][:missing]
            here = spare.to(states.device)
            _write(states[sample], here, [view.hidden_states[sample, here]])
            slots, origins = torch.cat([slots, spare]), torch.cat([origins, spare])
        ascending, order = slots.sort()
        kept.append(ascending)
        sources.append(origins[order])
        details.append({"crop_budgets": [_count_tokens(tokens_of.get(crop)) for crop in mine]})
    return Choice(kept, hidden_states=states, sources=sources, details=details)


def _write(states: Tensor, slots: Tensor, parts: Sequence[Tensor]) -> None:
    """Set some hidden states, given in parts."""
    for where, part in zip(slots.split([len(part) for part in parts]), parts, strict=True):
        states.index_copy_(0, where, part.to(states))


def _count_tokens(tokens: CropTokens | None) -> int:
    if tokens is None:
        return 0
    return sum(len(part.sources) for part in (tokens.classes, tokens.patches, tokens.merged))


def _group_sections(
    mine: Sequence[int], tokens_of: dict[int, CropTokens], crops: Crops
) -> list[tuple[int, ...]]:
    """Return the kept crops of a sample, tiles of one image together."""
    sections: dict[tuple[int, int], tuple[int, ...]] = {}
    for crop in mine:
        if crop in tokens_of:
            key = crops.medium[crop], crops.frame[crop]
            sections[key] = (*sections.get(key, ()), crop)
    return list(sections.values())


def _order_tokens(
    section: tuple[int, ...], tokens_of: dict[int, CropTokens], crops: Crops
) -> NewTokens:
    tokens = [tokens_of[crop] for crop in section]
    classes = NewTokens.join([part.classes for part in tokens])
    patches = NewTokens.join([part.patches for part in tokens])
    merged = NewTokens.join([part.merged for part in tokens])
    if len(section) > 1:  # within a crop they are in raster order
        raster = patches.sources.argsort()
        patches = NewTokens(patches.sources[raster], torch.cat(patches.states)[raster])
    tiled = crops.tile[section[0]]
    return NewTokens.join([patches, classes, merged] if tiled else [classes, patches, merged])


def _assign_slots(tokens: NewTokens, section: tuple[int, ...], crops: Crops, stay: bool) -> Tensor:
    """Return the slots of the sources, and free slots for tokens without one.

    Ascending unless `stay`.
    """
    own = tokens.sources[tokens.sources != NO_TOKEN]
    needed = len(tokens.sources) - len(own)
    if needed == 0:
        return own if stay else own.sort().values
    cells = crops.slot[list(section)].flatten()
    present = cells[cells >= 0]
    taken = torch.zeros(crops.view.mask.shape[1], dtype=torch.bool, device=own.device)
    free = present[~taken.index_fill_(0, own, True)[present]].sort().values
    # The first free slots for tokens before those with a source, the last ones for those after.
    before = int((tokens.sources != NO_TOKEN).int().argmax()) if len(own) else needed
    after = needed - before
    ends = torch.cat([free[:before], free[len(free) - after :]])
    if stay:
        slots = tokens.sources.clone()
        slots[slots == NO_TOKEN] = ends
        return slots
    return torch.cat([own, ends]).sort().values
