"""The selection for the images of a request, and its plan on the way through the engine.

An engine passes nothing to its model beside the tensors of an image, and keys its caches by the
arguments of the processor. So a request's plan goes in as one line of text (`SelectionPlan.text`),
which is part of the cache key, and reaches the model as one row of bytes per image (`ImagePlan`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from tokencover.budget import Budget, LayerCost, tokens_to_keep
from tokencover.errors import InputError
from tokencover.families import Layout
from tokencover.methods import BudgetedMethod, View, from_json


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Everything besides the images that the selection for a request depends on.

    `method` is JSON, `prompt_ids` are the token ids that it may read, `ceiling` is the largest
    budget of the server.
    """

    method: str
    prompt_ids: tuple[int, ...] = ()
    ceiling: Budget = 1.0

    @property
    def text(self) -> str:
        """The plan on one line, part of the engine's cache key; see `read`."""
        return json.dumps([read_version(), self.method, self.prompt_ids, self.ceiling])

    @classmethod
    def read(cls, text: str) -> SelectionPlan:
        """Parse what `text` wrote."""
        _, method, prompt_ids, ceiling = json.loads(text)
        return cls(method, tuple(prompt_ids), ceiling)

    def count_kept(self, layout: Layout) -> int:
        """Return how many tokens of an image are kept.

        Tokens that only end rows of tiles are kept in addition to the budget, unless the method
        drops them. Raises `InputError` if the budget exceeds the server's.
        """
        method = decode_method(self.method)
        droppable = int(get_droppable(method, layout).sum())
        kept = tokens_to_keep(method.budget, droppable)
        most = tokens_to_keep(self.ceiling, droppable)
        if kept > most:
            raise InputError(
                f"budget={method.budget} keeps {kept} of the {droppable} visual tokens of an "
                f"image. This server allows {self.ceiling}, which is {most} of them."
            )
        return kept + len(layout) - droppable

    def of_image(self, layout: Layout, *, advance: int, fingerprint: str = "") -> ImagePlan:
        """Build the plan for one image."""
        kept = self.count_kept(layout)
        return ImagePlan(self.method, self.prompt_ids, len(layout), kept, advance, fingerprint)


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """The plan for one image: `tokens` before and `kept` after pruning.

    `advance` is that of `PlacedImage`. `fingerprint` is the key of the encoder's cached output, ""
    without a cache.
    """

    method: str
    prompt_ids: tuple[int, ...]
    tokens: int
    kept: int
    advance: int
    fingerprint: str = ""

    def to_tensor(self) -> Tensor:
        """Return the plan as bytes."""
        written = json.dumps([getattr(self, name) for name in self.__slots__])
        return torch.frombuffer(bytearray(written.encode()), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, written: Tensor) -> ImagePlan:
        """Parse what `to_tensor` wrote."""
        method, prompt_ids, *numbers = json.loads(written.cpu().numpy().tobytes())
        return cls(method, tuple(prompt_ids), *numbers)


def get_droppable(method: BudgetedMethod, layout: Layout) -> Tensor:
    """Return the tokens of an image that a method is shown, ``(n,)`` bool."""
    return ~layout.newline | method.shows_newlines(0, 1)


@lru_cache(maxsize=256)
def decode_method(text: str) -> BudgetedMethod:
    """Build the method that `to_json` wrote, cached by text."""
    method = from_json(text)
    if not isinstance(method, BudgetedMethod):
        raise InputError(f"Cannot serve {text}: it has no budget.")
    return method


@lru_cache(maxsize=1)
def read_version() -> str:
    """Return the version of tokencover, "" where the package is not installed."""
    try:
        return version("tokencover")
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The kept tokens of one image: ``(k,)`` ascending indices, and ``(k, d)`` hidden states."""

    kept: Tensor
    hidden_states: Tensor
    details: Mapping[str, Any] = field(default_factory=dict)


def select_tokens(
    method: BudgetedMethod, hidden_states: Tensor, prompt: Tensor, layout: Layout
) -> Selection:
    """Select the visual tokens of an image to keep, as `tc.prune` does before the decoder.

    `hidden_states` ``(n, d)`` are the projector's output, `prompt` ``(l, d)`` the embeddings of the
    prompt tokens, which may be empty.
    """
    droppable = get_droppable(method, layout)
    shown = droppable.nonzero().squeeze(-1)
    index = shown.to(hidden_states.device)
    choice = method.choose(build_image_view(hidden_states[index], prompt, layout, shown))
    mask = ~droppable
    mask[shown[choice.kept[0].cpu()]] = True
    kept = mask.nonzero().squeeze(-1).to(hidden_states.device)
    if choice.hidden_states is not None:
        merged = choice.hidden_states[0].to(hidden_states)
        hidden_states = hidden_states.index_copy(0, index, merged)
    return Selection(kept, hidden_states[kept], choice.details[0] if choice.details else {})


def select_evenly(hidden_states: Tensor, count: int) -> Selection:
    """Keep `count` evenly spaced tokens, the fallback when a method fails."""
    kept = (torch.arange(count) * len(hidden_states) // count).to(hidden_states.device)
    return Selection(kept, hidden_states[kept])


def build_image_view(hidden_states: Tensor, prompt: Tensor, layout: Layout, shown: Tensor) -> View:
    """Build the view of one image: a batch of one, whose text are the prompt tokens."""
    device = hidden_states.device
    count, length = len(hidden_states), len(prompt)

    def gather(plane: Tensor) -> Tensor:
        return plane[shown].unsqueeze(0).to(device)

    mask = torch.ones(1, count, dtype=torch.bool, device=device)
    prompt_mask = torch.ones(1, length, dtype=torch.bool, device=device)
    # The prompt comes after the image, as far as methods use its positions.
    positions = len(layout) + torch.arange(length, device=device).unsqueeze(0)
    zeros = torch.zeros(1, count, dtype=torch.int64, device=device)
    return View(
        layer_idx=0,
        num_layers=1,
        hidden_states=hidden_states.unsqueeze(0),
        mask=mask,
        prompt=prompt.unsqueeze(0),
        prompt_mask=prompt_mask,
        prompt_positions=positions,
        text=prompt.unsqueeze(0),
        text_mask=prompt_mask,
        text_positions=positions,
        last=torch.tensor([len(layout) + length - 1], device=device),
        positions=shown.unsqueeze(0).to(device),
        total=torch.tensor([count], device=device),
        others=torch.tensor([length], device=device),
        medium=zeros,
        frame=gather(layout.frame),
        row=gather(layout.row),
        column=gather(layout.column),
        kind=gather(layout.kind),
        video=torch.zeros_like(mask),
        keys=_raise_unavailable,
        attention=_raise_unavailable,
        ahead=_raise_unavailable,
        norm=_raise_unavailable,
        cost=LayerCost(linear=1, quadratic=0),
    )


def _raise_unavailable(*args: Any, **kwargs: Any) -> Tensor:
    raise InputError(
        "An engine provides only the visual tokens of an image and the prompt tokens. Serve a "
        "method that needs no other input, for example mob."
    )
