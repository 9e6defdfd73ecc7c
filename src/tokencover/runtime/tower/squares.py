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
    """The squares of a crop. In the tower the patches of each follow each other, square by square.

    Attributes
    ----------
    rows, columns : int
        Of squares.
    side : int
        Patches along the side of one.
    classes : int
        Class tokens before the patches; they are in no square.
    """

    rows: int
    columns: int
    side: int
    classes: int

    @property
    def patches(self) -> int:
        """Patches of a square."""
        return self.side**2

    def arrange(self, states: Tensor) -> Tensor:
        """Tokens ``(c, t, d)`` whose patches are in raster order, square by square."""
        if self.side == 1:
            return states
        order = torch.cat([torch.arange(self.classes), self.classes + self._find_order()])
        return states[:, order.to(states.device)]

    def join(self, states: Tensor) -> Tensor:
        """From patches ``(c, classes + n * patches, d)`` to squares ``(c, classes + n, w)``.

        Class tokens are repeated, to be as wide as squares.
        """
        if self.side == 1:
            return states
        classes, patches = self._cut(states)
        wide = classes.repeat(1, 1, self.patches)
        return torch.cat([wide, patches.unflatten(1, (-1, self.patches)).flatten(2)], dim=1)

    def part(self, states: Tensor) -> Tensor:
        """Undo `join`."""
        if self.side == 1:
            return states
        classes, squares = self._cut(states)
        width = states.shape[-1] // self.patches
        return torch.cat([classes[..., :width], squares.unflatten(2, (-1, width)).flatten(1, 2)], 1)

    def count(self, states: Tensor) -> int:
        """Class tokens and squares of states ``(c, t, d)``."""
        return self.classes + (states.shape[1] - self.classes) // self.patches

    def group_alone(self, states: Tensor) -> Tensor:
        """Each class token and each square of states ``(c, t, d)`` on its own, ``(c, n)`` int64."""
        numbers = torch.arange(self.count(states), device=states.device)
        return numbers.expand(len(states), -1)

    def repeat(self, values: Tensor) -> Tensor:
        """Values of class tokens and squares ``(c, n)`` at the patches of each."""
        classes, squares = self._cut(values)
        return torch.cat([classes, squares.repeat_interleave(self.patches, dim=1)], dim=1)

    def spread(self, states: Tensor, groups: Tensor) -> Tensor:
        """Copy what there is for merged squares to all patches they stand for, in raster order.

        Parameters
        ----------
        states : Tensor
            ``(c, classes + n * patches, d)``.
        groups : Tensor
            ``(c, classes + rows * columns)`` int64, which of the ``classes + n`` each is part of.
        """
        if self.side == 1 and torch.equal(groups, self.group_alone(states)):
            return states
        groups = groups.to(states.device)
        classes, squares = self._cut(groups - self.classes)
        places = squares.unsqueeze(-1) * self.patches + torch.arange(
            self.patches, device=groups.device
        )
        places = places.flatten(1)[:, self._find_order().argsort().to(groups.device)]
        whole = torch.cat([classes, places], dim=1) + self.classes
        return states.gather(1, whole.unsqueeze(-1).expand(-1, -1, states.shape[-1]))

    def average_keys(self, keys: Tensor) -> Tensor:
        """From patches ``(c, heads, t, head_dim)`` to squares."""
        if self.side == 1:
            return keys
        classes, patches = keys.split([self.classes, keys.shape[2] - self.classes], dim=2)
        return torch.cat([classes, patches.unflatten(2, (-1, self.patches)).mean(3)], dim=2)

    def fold_weights(self, weights: Tensor) -> Tensor:
        """From weights of attention between patches ``(c, t, t)`` to those between squares."""
        if self.side == 1:
            return weights
        classes, patches = weights.split([self.classes, weights.shape[2] - self.classes], dim=2)
        received = torch.cat([classes, patches.unflatten(2, (-1, self.patches)).sum(3)], dim=2)
        classes, patches = self._cut(received)
        return torch.cat([classes, patches.unflatten(1, (-1, self.patches)).mean(2)], dim=1)

    def _cut(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens[:, : self.classes], tokens[:, self.classes :]

    def _find_order(self) -> Tensor:
        """``(p,)`` int64: places of the patches in raster order, square by square."""
        raster = torch.arange(self.rows * self.columns * self.patches)
        grid = raster.view(self.rows, self.side, self.columns, self.side)
        return grid.transpose(1, 2).flatten()
