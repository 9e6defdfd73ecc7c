"""Squares of patches that a model folds into one visual token after its tower.

Merging single patches there would leave as many visual tokens as before, because nearly every
square would still be another one. So squares are merged as a whole: a square's state is that of its
patches side by side, and the mean of two squares that of each patch with the one at the same place
in the other. Keys of a square are the mean of its patches' keys, as VisionZip's code has them for
Qwen's towers; a query of it is its patches' on average, and it is attended to as all of them.

Where each patch is a visual token of its own, squares have one patch, and nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Squares:
    """The squares of a crop. Its class tokens come first, then the patches, square by square.

    Attributes
    ----------
    rows, columns : int
        Of squares.
    patches : int
        Of each square.
    classes : int
        Class tokens before the patches; they are in no square.
    """

    rows: int
    columns: int
    patches: int
    classes: int

    @property
    def units(self) -> int:
        """Class tokens and squares."""
        return self.classes + self.rows * self.columns

    def count_tokens(self, units: int) -> int:
        """Tokens of so many class tokens and squares."""
        return self.classes + (units - self.classes) * self.patches

    def find_tokens(self, units: Tensor) -> Tensor:
        """From class tokens and squares ``(c, n)`` int64 to the tokens that they are made of."""
        classes, squares = self._cut(units)
        first = (squares - self.classes) * self.patches + self.classes
        patches = first.unsqueeze(-1) + torch.arange(self.patches, device=units.device)
        return torch.cat([classes, patches.flatten(1)], dim=1)

    def repeat(self, values: Tensor) -> Tensor:
        """Values of class tokens and squares ``(c, n)`` at the tokens of each."""
        classes, squares = self._cut(values)
        return torch.cat([classes, squares.repeat_interleave(self.patches, dim=1)], dim=1)

    def join(self, states: Tensor) -> Tensor:
        """From tokens ``(c, t, d)`` to class tokens and squares ``(c, n, w)``.

        Class tokens are repeated, to be as wide as squares.
        """
        if self.patches == 1:
            return states
        classes, patches = self._cut(states)
        wide = classes.repeat(1, 1, self.patches)
        return torch.cat([wide, patches.unflatten(1, (-1, self.patches)).flatten(2)], dim=1)

    def part(self, states: Tensor) -> Tensor:
        """Undo `join`."""
        if self.patches == 1:
            return states
        classes, squares = self._cut(states)
        width = states.shape[-1] // self.patches
        return torch.cat([classes[..., :width], squares.unflatten(2, (-1, width)).flatten(1, 2)], 1)

    def average_keys(self, keys: Tensor) -> Tensor:
        """From tokens ``(c, heads, t, head_dim)`` to class tokens and squares."""
        if self.patches == 1:
            return keys
        classes, patches = keys.split([self.classes, keys.shape[2] - self.classes], dim=2)
        return torch.cat([classes, patches.unflatten(2, (-1, self.patches)).mean(3)], dim=2)

    def fold_weights(self, weights: Tensor) -> Tensor:
        """From weights of attention between tokens ``(c, t, t)`` to those between squares."""
        if self.patches == 1:
            return weights
        classes, patches = weights.split([self.classes, weights.shape[2] - self.classes], dim=2)
        received = torch.cat([classes, patches.unflatten(2, (-1, self.patches)).sum(3)], dim=2)
        classes, patches = self._cut(received)
        return torch.cat([classes, patches.unflatten(1, (-1, self.patches)).mean(2)], dim=1)

    def _cut(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens[:, : self.classes], tokens[:, self.classes :]
