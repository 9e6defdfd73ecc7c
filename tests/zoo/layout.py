"""How the visual tokens of one image or video lie in its grid."""

from dataclasses import dataclass
from typing import NamedTuple


class Grid(NamedTuple):
    """Tokens in raster order: ``frames`` (or crops) of ``rows`` by ``columns``."""

    frames: int
    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        return self.frames * self.rows * self.columns

    def newline_offsets(self) -> list[int]:
        return []

    def class_offsets(self) -> list[int]:
        return []


@dataclass(frozen=True)
class Tiled:
    """A base view, then the unpadded tiled view whose rows each end with a newline token.

    Without tiles one newline token follows the base view (LLaVA-OneVision: several images, video).
    """

    base: Grid
    tiles: Grid | None

    @property
    def tokens(self) -> int:
        if self.tiles is None:
            return self.base.tokens + 1
        return self.base.tokens + self.tiles.rows * (self.tiles.columns + 1)

    def newline_offsets(self) -> list[int]:
        if self.tiles is None:
            return [self.base.tokens]
        width = self.tiles.columns + 1
        return [self.base.tokens + (row + 1) * width - 1 for row in range(self.tiles.rows)]

    def class_offsets(self) -> list[int]:
        return []


@dataclass(frozen=True)
class WithClass:
    """Frames that each begin with the class token of the vision encoder (Video-LLaVA's video)."""

    base: Grid

    @property
    def tokens(self) -> int:
        return self.base.tokens + self.base.frames

    def newline_offsets(self) -> list[int]:
        return []

    def class_offsets(self) -> list[int]:
        return [
            frame * (self.base.rows * self.base.columns + 1) for frame in range(self.base.frames)
        ]


@dataclass(frozen=True)
class Enclosed:
    """One view whose rows each end with a newline token, between two tokens more (HunYuan VL)."""

    base: Grid

    @property
    def tokens(self) -> int:
        return self.base.rows * (self.base.columns + 1) + 2

    def newline_offsets(self) -> list[int]:
        width = self.base.columns + 1
        return [0, *((row + 1) * width for row in range(self.base.rows)), self.tokens - 1]

    def class_offsets(self) -> list[int]:
        return []


Layout = Grid | Tiled | WithClass | Enclosed
