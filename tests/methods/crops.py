"""Hand-made vision encoders: what methods read of crops, from plain tensors, without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tokencover.methods import View, VisionOutputs

from .views import hand_made

WIDTH, STATE = 5, 7
"""Of the vision encoder's features, and of the decoder's states."""
NEWLINE, CLASS = -1, -2
"""What a token has for a cell if it has none."""


class Token(NamedTuple):
    """A visual token: the crop and the cell it comes from, and where it lies."""

    crop: int
    cell: int
    frame: int
    row: int
    column: int


@dataclass(frozen=True)
class Plain:
    """One view."""

    def tokens(self, crop: int, side: int) -> list[Token]:
        return _view(crop, side, frame=0)

    crops: int = 1


@dataclass(frozen=True)
class Tiled:
    """A base view, then tiles as one view; `cut` rows and columns are taken from all its edges."""

    grid: tuple[int, int] = (2, 2)
    cut: tuple[int, int] = (0, 0)

    @property
    def crops(self) -> int:
        return 1 + self.grid[0] * self.grid[1]

    def tokens(self, crop: int, side: int) -> list[Token]:
        found = _view(crop, side, frame=0)
        (down, across), (top, left) = self.grid, self.cut
        for row in range(top, down * side - top):
            for column in range(left, across * side - left):
                tile = crop + 1 + row // side * across + column // side
                cell = row % side * side + column % side
                found.append(Token(tile, cell, 1, row - top, column - left))
            found.append(Token(crop, NEWLINE, 1, -1, -1))
        return found


@dataclass(frozen=True)
class Video:
    """Frames, each after its class token."""

    crops: int = 2

    def tokens(self, crop: int, side: int) -> list[Token]:
        found = []
        for frame in range(self.crops):
            found.append(Token(crop + frame, CLASS, frame, -1, -1))
            found += _view(crop + frame, side, frame)
        return found


Image = Plain | Tiled | Video


def _view(crop: int, side: int, frame: int) -> list[Token]:
    return [Token(crop, cell, frame, *divmod(cell, side)) for cell in range(side * side)]


def project(features: Tensor) -> Tensor:
    """From width 5 to width 7, for any leading shape."""
    generator = torch.Generator().manual_seed(99)
    weights = torch.randn(WIDTH, STATE, generator=generator)
    return torch.tanh(features.float() @ weights)


@dataclass(frozen=True)
class Tower:
    """Features ``(c, t, w)``, and queries and keys ``(c, heads, t, head_dim)`` by block."""

    features: Tensor
    queries: Mapping[int, Tensor]
    keys: Mapping[int, Tensor]
    side: int
    classes: int
    scaling: float
    depth: int = 3
    feature_block: int = 1
    project: Callable[[Tensor], Tensor] = project

    def only(self, crops: slice) -> Tower:
        """Some of the crops."""
        return replace(
            self,
            features=self.features[crops],
            queries={block: each[crops] for block, each in self.queries.items()},
            keys={block: each[crops] for block, each in self.keys.items()},
        )


def random_tower(crops: int, side: int = 4, classes: int = 1, seed: int = 0) -> Tower:
    generator = torch.Generator().manual_seed(seed)
    heads, head_dim, length, blocks = 2, 3, classes + side * side, range(3)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return Tower(
        features=noise(crops, length, WIDTH),
        queries={block: noise(crops, heads, length, head_dim) for block in blocks},
        keys={block: noise(crops, heads, length, head_dim) for block in blocks},
        side=side,
        classes=classes,
        scaling=0.6,
    )


def tower_with_rows(rows: Mapping[int, Tensor]) -> Tower:
    """A vision encoder with these class-token logits ``(c, cells)``; one head of width one."""
    crops, cells = next(iter(rows.values())).shape
    random = random_tower(crops, int(cells**0.5))
    keys = {
        block: torch.cat([torch.zeros(crops, 1), row], dim=1)[:, None, :, None]
        for block, row in rows.items()
    }
    queries = {block: torch.ones_like(each) for block, each in keys.items()}
    return replace(random, queries=queries, keys=keys, scaling=1.0)


def tokens_of(tower: Tower, samples: Sequence[Sequence[Image]]) -> list[list[Token]]:
    """All visual tokens of each sample, newline tokens included; crops are used in order."""
    crop, found = 0, []
    for images in samples:
        mine: list[Token] = []
        for image in images:
            mine += image.tokens(crop, tower.side)
            crop += image.crops
        found.append(mine)
    assert crop == len(tower.features)
    return found


def seen(
    tower: Tower, samples: Sequence[Sequence[Image]], *, newlines: bool = True
) -> tuple[View, list[list[Token]]]:
    """A view of samples with these images, and its tokens."""
    tokens = tokens_of(tower, samples)
    if not newlines:
        tokens = [[token for token in mine if token.cell != NEWLINE] for mine in tokens]
    length = tower.classes + tower.side**2
    media, videos = _media(samples, tower.side, newlines)

    def place(token: Token) -> int:
        if token.cell == NEWLINE:
            return -1
        return token.crop * length + (0 if token.cell == CLASS else tower.classes + token.cell)

    index = _padded([[place(token) for token in mine] for mine in tokens], -1)
    planes: dict[str, Any] = {
        name: _padded([[getattr(token, name) for token in mine] for mine in tokens], -1)
        for name in ("frame", "row", "column")
    }
    flat = tower.features.flatten(0, 1)
    newline = torch.full_like(tower.project(flat[0]), 0.5)
    states = [
        torch.stack(
            [newline if each < 0 else tower.project(flat[each]) for each in row[: len(mine)]]
        )
        for row, mine in zip(index, tokens, strict=True)
    ]
    encoded = VisionOutputs(
        features=tower.features,
        classes=tower.classes,
        num_blocks=tower.depth,
        feature_block=tower.feature_block,
        scaling=tower.scaling,
        index=index,
        queries=tower.queries.__getitem__,
        keys=tower.keys.__getitem__,
        project=tower.project,
    )
    planes |= {"medium": _padded(media, -1), "video": _padded(videos, 0).bool()}
    return hand_made(states, block=0, encoded=encoded, **planes), tokens


def _media(
    samples: Sequence[Sequence[Image]], side: int, newlines: bool
) -> tuple[list[list[int]], list[list[int]]]:
    media: list[list[int]] = []
    videos: list[list[int]] = []
    for images in samples:
        media.append([])
        videos.append([])
        for number, image in enumerate(images):
            shown = [t for t in image.tokens(0, side) if newlines or t.cell != NEWLINE]
            media[-1] += [number] * len(shown)
            videos[-1] += [int(isinstance(image, Video))] * len(shown)
    return media, videos


def _padded(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (longest - len(row))] for row in rows])


def crops_of(tokens: Sequence[Token]) -> dict[int, list[int]]:
    """For each crop the indices of its patches, in the order of the sequence."""
    found: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.cell >= 0:
            found.setdefault(token.crop, []).append(place)
    return found


def slow_rows(tower: Tower, block: int, crop: int) -> list[list[float]]:
    """Attention that each head gives each cell: the class token's, or the mean of all rows."""
    found = []
    for query, key in zip(tower.queries[block][crop], tower.keys[block][crop], strict=True):
        maps = torch.stack([(query[i] * key).sum(-1) * tower.scaling for i in range(len(key))])
        weights = maps.exp() / maps.exp().sum(-1, keepdim=True)
        row = weights[0, tower.classes :] if tower.classes else weights.mean(0)
        found.append(row.tolist())
    return found


def slow_scores(tower: Tower, block: int, crop: int) -> list[float]:
    """Mean over heads."""
    rows = slow_rows(tower, block, crop)
    return [sum(each) / len(each) for each in zip(*rows, strict=True)]


def slow_even(total: int, capacities: Sequence[int]) -> list[int]:
    """Hand out one token at a time, to the first of those that have least."""
    given = [0] * len(capacities)
    for _ in range(total):
        least = min((have, place) for place, have in enumerate(given) if have < capacities[place])
        given[least[1]] += 1
    return given
