"""What is to be chosen for the pictures of a request, on its way from an engine's processor.

An engine passes nothing to its model beside the tensors of a picture, and keys its caches by the
arguments of the processor. So a request's plan goes in as one line of text (`ChoicePlan.text`),
which the caches see, and on to the model as one row of bytes for each picture (`PicturePlan`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

from tokencover.budget import Budget, tokens_to_keep
from tokencover.errors import InputError
from tokencover.families import Layout
from tokencover.methods import BudgetedMethod, from_json


@dataclass(frozen=True, slots=True)
class ChoicePlan:
    """Everything that choices of a request depend on, beside its pictures.

    Attributes
    ----------
    method : str
        The method with all its settings, as JSON.
    words : tuple of int
        Token ids of the words that it may look at; empty if it looks at none.
    ceiling : int or float
        The largest budget that the server allows.
    """

    method: str
    words: tuple[int, ...] = ()
    ceiling: Budget = 1.0

    @property
    def text(self) -> str:
        """All of it on one line, which differs whenever choices may; `read` reads it."""
        return json.dumps([read_version(), self.method, self.words, self.ceiling])

    @classmethod
    def read(cls, text: str) -> ChoicePlan:
        """The plan that `text` wrote."""
        _, method, words, ceiling = json.loads(text)
        return cls(method, tuple(words), ceiling)

    def count_kept(self, layout: Layout) -> int:
        """How many tokens of a picture are left.

        Tokens that only end rows of tiles stay beside the budget, unless the method drops them.

        Raises
        ------
        InputError
            If that is more than the server allows.
        """
        method = load_method(self.method)
        droppable = int(mark_droppable(method, layout).sum())
        kept = tokens_to_keep(method.budget, droppable)
        most = tokens_to_keep(self.ceiling, droppable)
        if kept > most:
            raise InputError(
                f"budget {method.budget} keeps {kept} of the {droppable} visual tokens of a "
                f"picture; this server allows {self.ceiling}, which is {most} of them."
            )
        return kept + len(layout) - droppable

    def of_picture(self, layout: Layout, *, advance: int, fingerprint: str = "") -> PicturePlan:
        """The plan for one of the pictures; see `PicturePlan`."""
        kept = self.count_kept(layout)
        return PicturePlan(self.method, self.words, len(layout), kept, advance, fingerprint)


@dataclass(frozen=True, slots=True)
class PicturePlan:
    """What a model must know about one picture.

    Attributes
    ----------
    method, words : str, tuple of int
        See `ChoicePlan`.
    tokens, kept : int
        Visual tokens of the picture, before and after.
    advance : int
        How far positions go on over it: see `PlacedPicture`.
    fingerprint : str
        By which the tower's output is remembered; "" for no memory.
    """

    method: str
    words: tuple[int, ...]
    tokens: int
    kept: int
    advance: int
    fingerprint: str = ""

    def to_tensor(self) -> Tensor:
        """All of it as bytes."""
        written = json.dumps([getattr(self, name) for name in self.__slots__])
        return torch.frombuffer(bytearray(written.encode()), dtype=torch.uint8)

    @classmethod
    def from_tensor(cls, written: Tensor) -> PicturePlan:
        """The plan that `to_tensor` wrote."""
        method, words, *numbers = json.loads(written.cpu().numpy().tobytes())
        return cls(method, tuple(words), *numbers)


def mark_droppable(method: BudgetedMethod, layout: Layout) -> Tensor:
    """Which tokens of a picture a method is shown, ``(n,)`` bool."""
    return ~layout.newline | method.shows_newlines(0, 1)


@lru_cache(maxsize=256)
def load_method(text: str) -> BudgetedMethod:
    """The method that `to_json` wrote; one and the same for one text."""
    method = from_json(text)
    if not isinstance(method, BudgetedMethod):
        raise InputError(f"{text} has no budget, so it cannot be served.")
    return method


@lru_cache(maxsize=1)
def read_version() -> str:
    """Our version, or "" where the package is not installed."""
    try:
        return version("tokencover")
    except PackageNotFoundError:
        return ""
