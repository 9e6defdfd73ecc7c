"""The choice itself: a method asked about the tokens of one picture, outside of any model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tokencover.budget import LayerCost
from tokencover.errors import TokenCoverError
from tokencover.families import Layout
from tokencover.methods import BudgetedMethod, View
from tokencover.serving.choice_plan import mark_droppable


class NotShownError(TokenCoverError):
    """A method asked for something of the model that an engine does not show."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is left of one picture.

    Attributes
    ----------
    kept : Tensor
        ``(k,)`` int64 ascending, among all its visual tokens.
    states : Tensor
        ``(k, d)``, their states; new ones, if the method merges.
    details : Mapping
        What the method has to say.
    """

    kept: Tensor
    states: Tensor
    details: Mapping[str, Any] = field(default_factory=dict)


def choose_tokens(
    method: BudgetedMethod, states: Tensor, words: Tensor, layout: Layout
) -> Selection:
    """Ask a method which visual tokens of a picture to keep, as `tc.prune` would.

    Parameters
    ----------
    method : BudgetedMethod
        Acts before the decoder.
    states : Tensor
        ``(n, d)``, what the projector made of the picture.
    words : Tensor
        ``(l, d)``, embeddings of the user's words; there may be none.
    layout : Layout
        Where each of the tokens lies in the picture.
    """
    droppable = mark_droppable(method, layout)
    shown = droppable.nonzero().squeeze(-1)
    here = shown.to(states.device)
    choice = method.choose(make_picture_view(states[here], words, layout, shown))
    keep = ~droppable
    keep[shown[choice.kept[0].cpu()]] = True
    kept = keep.nonzero().squeeze(-1).to(states.device)
    if choice.hidden_states is not None:
        states = states.index_copy(0, here, choice.hidden_states[0].to(states))
    return Selection(kept, states[kept], choice.details[0] if choice.details else {})


def spread_evenly(states: Tensor, count: int) -> Selection:
    """Tokens at equal distances along the picture: what is kept when a method fails."""
    kept = (torch.arange(count) * len(states) // count).to(states.device)
    return Selection(kept, states[kept])


def make_picture_view(states: Tensor, words: Tensor, layout: Layout, shown: Tensor) -> View:
    """What a method sees of one picture: a batch of one, whose text is the user's words."""
    device = states.device
    count, spoken = len(states), len(words)

    def place(plane: Tensor) -> Tensor:
        return plane[shown].unsqueeze(0).to(device)

    mask = torch.ones(1, count, dtype=torch.bool, device=device)
    prompt_mask = torch.ones(1, spoken, dtype=torch.bool, device=device)
    # Words stand after the picture, as far as any method asks.
    places = len(layout) + torch.arange(spoken, device=device).unsqueeze(0)
    zeros = torch.zeros(1, count, dtype=torch.int64, device=device)
    return View(
        layer_idx=0,
        num_layers=1,
        hidden_states=states.unsqueeze(0),
        mask=mask,
        prompt=words.unsqueeze(0),
        prompt_mask=prompt_mask,
        prompt_positions=places,
        text=words.unsqueeze(0),
        text_mask=prompt_mask,
        text_positions=places,
        last=torch.tensor([len(layout) + spoken - 1], device=device),
        positions=shown.unsqueeze(0).to(device),
        total=torch.tensor([count], device=device),
        others=torch.tensor([spoken], device=device),
        medium=zeros,
        frame=place(layout.frame),
        row=place(layout.row),
        column=place(layout.column),
        kind=place(layout.kind),
        video=torch.zeros_like(mask),
        keys=_refuse,
        attention=_refuse,
        ahead=_refuse,
        norm=_refuse,
        cost=LayerCost(linear=1, quadratic=0),
    )


def _refuse(*asked: Any, **settings: Any) -> Tensor:
    raise NotShownError(
        "before the decoder of an engine there are the tokens of a picture and the words, and "
        "nothing else: serve a method that needs no more, such as mob."
    )
