"""What happened to one sample."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import torch
from torch import Tensor

from tokencover.colors import ROLE_COLORS, Role, to_css
from tokencover.errors import TokenCoverError

CELL: Final = 6
"""Pixels of a token in a notebook."""


class NothingTracedError(TokenCoverError, IndexError):
    """The trace was read before anything was pruned."""


class Traces(list["Trace"]):
    """The traces of a batch."""

    def __getitem__(self, place: Any) -> Any:
        if not self and not isinstance(place, slice):
            raise NothingTracedError(
                "nothing was pruned yet: call the model with an image inside the `with` block, for "
                "example model.generate(**inputs), then read run.trace."
            )
        return super().__getitem__(place)


@dataclass(slots=True, repr=False)
class Trace:
    """What was kept of one sample, and why.

    Attributes
    ----------
    sample : int
        Row of the batch.
    visual_tokens : int
        How many visual tokens the sample has, newline tokens included.
    kept : Tensor
        Indices of the tokens kept after the last pruning step, ascending, among all visual tokens
        of the sample in sequence order. If the method moved states, the tokens whose states are
        there now, in sequence order; -1 for a state that was none of them.
    medium, frame, row, column : Tensor
        Which image or video of the prompt each kept token belongs to, and its grid location.
    grids : dict
        (rows, columns) of every view or frame, by (medium, frame).
    tokens_per_layer : list of int
        Visual tokens that each decoder layer processed.
    flops, flops_unpruned : int
        FLOPs of all decoder layers on the sample's tokens, with and without pruning.
    seconds : float
        Time the method took at all its pruning layers, for the whole batch.
    details : Mapping
        Values recorded by the method; `prompt_centers`, `visual_centers`,
        `center_prompt_positions`, `coupling` and `split` read from here. Centers are indices among
        all visual tokens of the sample, like `kept`. Expensive values that decide nothing (the
        prompt positions, and eta where the split does not depend on it) are computed on first
        access; until then the trace holds the hidden states that they need.
    grid_locations : Tensor
        ``(visual_tokens, 4)`` int64, medium, frame, row and column of every visual token,
        including dropped ones; -1 where a token has none.
    """

    sample: int
    visual_tokens: int
    kept: Tensor
    medium: Tensor
    frame: Tensor
    row: Tensor
    column: Tensor
    grids: dict[tuple[int, int], tuple[int, int]]
    tokens_per_layer: list[int]
    flops: int
    flops_unpruned: int
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)
    grid_locations: Tensor = field(default_factory=lambda: torch.empty(0, 4, dtype=torch.int64))

    @property
    def mean_tokens(self) -> float:
        """Mean number of visual tokens per decoder layer."""
        return sum(self.tokens_per_layer) / len(self.tokens_per_layer)

    @property
    def prompt_centers(self) -> Tensor:
        """Tokens selected for the prompt, best first; empty if the method has none."""
        return self._read_indices("prompt_centers")

    @property
    def visual_centers(self) -> Tensor:
        """Tokens selected to cover the rest of the image, in order of selection."""
        return self._read_indices("visual_centers")

    @property
    def center_prompt_positions(self) -> Tensor:
        """Sequence position of the prompt token closest to each prompt center (int64)."""
        return self._read_indices("center_prompt_positions")

    @property
    def coupling(self) -> float | None:
        """The Hausdorff distance eta at the pruning layer, if the method measures it."""
        return self.details.get("coupling")

    @property
    def split(self) -> Any:
        """The budget split that was used; a list with one entry per budget."""
        return self.details.get("split")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for `json.dumps`; lazy values are computed."""
        views = [
            {"medium": medium, "frame": frame, "rows": rows, "columns": columns}
            for (medium, frame), (rows, columns) in self.grids.items()
        ]
        places = {name: getattr(self, name) for name in ("medium", "frame", "row", "column")}
        chosen = ("prompt_centers", "visual_centers", "center_prompt_positions")
        return {
            "sample": self.sample,
            "visual_tokens": self.visual_tokens,
            "kept": self.kept.tolist(),
            **{name: value.tolist() for name, value in places.items()},
            "views": views,
            "tokens_per_layer": list(self.tokens_per_layer),
            "mean_tokens": self.mean_tokens,
            "flops": self.flops,
            "flops_unpruned": self.flops_unpruned,
            "seconds": self.seconds,
            "coupling": self.coupling,
            "split": _make_plain(self.split),
            **{name: getattr(self, name).tolist() for name in chosen},
        }

    def __repr__(self) -> str:
        fraction = self.flops / self.flops_unpruned
        return (
            f"Trace(sample {self.sample}: {len(self.kept)} of {self.visual_tokens} visual tokens "
            f"kept, {self.mean_tokens:.1f} per layer, {fraction:.1%} of the decoder's FLOPs)"
        )

    def _repr_html_(self) -> str:
        """A grid of the kept tokens for each view or frame."""
        prompt, visual = set(self.prompt_centers.tolist()), set(self.visual_centers.tolist())
        numbers = zip(
            *(
                getattr(self, name).tolist()
                for name in ("kept", "medium", "frame", "row", "column")
            ),
            strict=True,
        )
        cells: dict[tuple[int, int], list[str]] = {view: [] for view in self.grids}
        for token, medium, frame, row, column in numbers:
            role: Role = "prompt" if token in prompt else "visual" if token in visual else "kept"
            color = to_css(ROLE_COLORS[role])
            if (medium, frame) in cells and row >= 0:
                cell = f'<rect x="{column}" y="{row}" width="1" height="1" fill="{color}"/>'
                cells[medium, frame].append(cell)
        views = [
            f'<svg viewBox="0 0 {columns} {rows}" width="{CELL * columns}" height="{CELL * rows}" '
            f'style="background:#e4e4e4;margin:4px">{"".join(cells[view])}</svg>'
            for view, (rows, columns) in self.grids.items()
        ]
        return f"<div><div>{escape(repr(self))}</div>{''.join(views)}</div>"

    def _read_indices(self, name: str) -> Tensor:
        found: Tensor = self.details.get(name, torch.empty(0, dtype=torch.int64))
        return found


def _make_plain(split: Any) -> Any:
    if isinstance(split, list | tuple):
        return list(map(_make_plain, split))
    return dataclasses.asdict(split) if dataclasses.is_dataclass(split) else split  # type: ignore[arg-type]
