"""Hand-made views of a vision encoder, and how it continues with what a method chose."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tokencover.methods._shared.vision_merging import VisionMergingMethod
from tokencover.methods.base import VisionMerge, VisionView


def vision_view(
    grid: tuple[int, int],
    *,
    crops: Sequence[int] = (1,),
    classes: int = 1,
    block: int = 0,
    depth: int = 4,
    feature_block: int = 2,
    width: int = 6,
    seed: int = 0,
    **changes: Any,
) -> VisionView:
    """A view inside a vision encoder in which nothing has been merged yet.

    Parameters
    ----------
    grid
        Rows and columns of a crop.
    crops
        How many crops each image has.
    classes, block, depth, feature_block
        As in the view.
    width
        Of the states; keys have two heads of five.
    seed
        Of states, keys and attention.
    **changes
        Fields of the view to set by hand.
    """
    total, tokens = sum(crops), classes + grid[0] * grid[1]
    fields: dict[str, Any] = {
        "block": block,
        "num_blocks": depth,
        "hidden_states": torch.randn(total, tokens, width, generator=_seeded(seed)),
        "classes": classes,
        "sizes": torch.ones(total, tokens, dtype=torch.int64),
        "grid": grid,
        "crops": tuple(crops),
        "feature_block": feature_block,
        "members": torch.arange(tokens).expand(total, -1),
        **signals(total, tokens, seed),
    }
    return VisionView(**{**fields, **changes})


def signals(crops: int, tokens: int, seed: int) -> dict[str, Any]:
    """Random keys and attention, each crop's own."""
    keys = torch.randn(crops, 2, tokens, 5, generator=_seeded(seed + 1))
    attention = torch.randn(crops, 3, tokens, tokens, generator=_seeded(seed + 2))
    attention = (2 * attention).softmax(-1).mean(1)
    return {"keys": lambda: keys, "attention": lambda: attention}


def after(view: VisionView, choice: VisionMerge, seed: int) -> VisionView:
    """The view in the next block: merged states, sizes and members, new keys and attention."""
    crops, count, _ = choice.hidden_states.shape
    return dataclasses.replace(
        view,
        block=view.block + 1,
        hidden_states=choice.hidden_states,
        sizes=view.sizes.new_zeros(crops, count).scatter_add(1, choice.groups, view.sizes),
        members=choice.groups.gather(1, view.members),
        **signals(crops, count, seed),
    )


def run_through(method: VisionMergingMethod, view: VisionView) -> list[VisionView]:
    """The views of all blocks in which the method acts, and the one after the last."""
    blocks = list(method.vision_blocks(view.num_blocks, view.feature_block))
    views = [dataclasses.replace(view, block=blocks[0])]
    for number, block in enumerate(blocks):
        assert views[-1].block == block
        views.append(after(views[-1], method.merge_in_vision_encoder(views[-1]), seed=100 + number))
    return views


def crop_of(view: VisionView, crop: int) -> VisionView:
    """One crop as an image of its own."""
    keys, attention = view.keys()[crop : crop + 1], view.attention()[crop : crop + 1]
    return dataclasses.replace(
        view,
        hidden_states=view.hidden_states[crop : crop + 1],
        sizes=view.sizes[crop : crop + 1],
        members=view.members[crop : crop + 1],
        crops=(1,),
        keys=lambda: keys,
        attention=lambda: attention,
    )


def lists(tensor: Tensor) -> Any:
    """Plain numbers, in doubles."""
    return tensor.double().tolist()


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
