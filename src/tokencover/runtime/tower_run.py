"""What is known while crops go through a vision tower that merges their tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from tokencover.errors import InputError
from tokencover.runtime.tower_choice import mean_attention
from tokencover.runtime.vision import VisionTower


@dataclass(slots=True)
class TowerRun:
    """One forward pass of a tower.

    Attributes
    ----------
    grid : tuple of int
        Rows and columns of its first tokens, class tokens apart.
    received : Tensor or None
        ``(c, n)`` int64, which token block 0 received for each first token.
    groups : list of Tensor
        For each block that was reached ``(c, n)`` int64: which of its tokens stands for each first
        token; in the end, which token of its output.
    sizes : Tensor or None
        ``(c, m)`` int64, how many first tokens each token stands for now.
    projections : dict
        ``(c, m, heads * head_dim)``, "q_proj" and "k_proj" of the attention that ran last, if it is
        watched.
    bias : Tensor or None
        ``(c, m)``, what that attention added for the sizes of its tokens.
    crops : tuple of int or None
        Crops of each picture, once they were asked for.
    seconds : float
        Time the method took.
    complete : bool
        Whether the tower came to its end.
    """

    grid: tuple[int, int]
    received: Tensor | None = None
    groups: list[Tensor] = field(default_factory=list)
    sizes: Tensor | None = None
    projections: dict[str, Tensor] = field(default_factory=dict)
    bias: Tensor | None = None
    crops: tuple[int, ...] | None = None
    seconds: float = 0.0
    complete: bool = False

    def keys(self, tower: VisionTower, block: int) -> Tensor:
        """``(c, heads, m, head_dim)``, of the attention that ran last, that of this block."""
        return tower.by_head(block, self._projection("k_proj", block))

    def attention(self, tower: VisionTower, block: int) -> Tensor:
        """``(c, m, m)`` float32, its weights, mean over heads."""
        queries = tower.by_head(block, self._projection("q_proj", block))
        scaling = float(tower.attention(block).scale)
        return mean_attention(queries, self.keys(tower, block), scaling, self.bias)

    def _projection(self, name: str, block: int) -> Tensor:
        if name not in self.projections:
            raise InputError(
                f"there are no keys before tower block {block + 1}, because no block has run: "
                "merge before a later one, or by the states alone."
            )
        return self.projections[name]
