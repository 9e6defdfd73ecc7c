"""How the pictures of a pass were encoded: where their tokens lie is known nowhere else."""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import (
    Family,
    FoldedTiles,
    Layout,
    Media,
    Places,
    VisionEncoderFacts,
)
from tokencover.pruning.hooks import Hooks

KINDS = ("image", "video")
PIXELS = ("pixel_values", "pixel_values_images", "pixel_values_videos")
"""The arguments that bring pictures or videos."""


class Listener(Protocol):
    """Acts in the vision tower, and is told of each call of the encoders."""

    thread_state: threading.local

    def expect(self, name: str, arguments: dict[str, Any]) -> None:
        """Pictures are going to be encoded with these arguments."""

    def remember(self, name: str) -> None:
        """They were, or it failed."""

    def forget(self, name: str) -> None:
        """There are no such pictures, or the model is going to encode them."""


class EncoderCalls:
    """Remembers, for each thread, the latest calls of a model's picture and video encoders.

    `generate` encodes before the model's own forward, so the calls are watched where they happen.

    Parameters
    ----------
    model : nn.Module
        The whole model.
    family : Family
        Says where its encoders are, and what layouts they make.
    listeners : sequence of Listener
        Those who act in the vision tower.
    """

    def __init__(self, model: nn.Module, family: Family, listeners: Sequence[Listener]) -> None:
        self._config: Any = model.config
        self._base = model.get_submodule(family.base)
        self._family, self._listeners = family, listeners
        self._local = threading.local()

    def watch(self, hooks: Hooks) -> None:
        """Wrap the encoders."""
        for kind in KINDS:
            name = f"get_{kind}_features"
            if hasattr(self._base, name):
                hooks.around(self._base, name, functools.partial(self._record, kind))

    def begin(self, arguments: Mapping[str, Any], expected: Sequence[str]) -> None:
        """A pass with visual tokens begins; what is not `expected` to be known is forgotten."""
        self._local.input_ids = arguments["input_ids"]
        self._local.call = {name: arguments.get(name) for name in self._family.call_names}
        videos = arguments.get("pixel_values_videos")
        self._local.videos = weakref.ref(videos) if isinstance(videos, Tensor) else None
        for kind in KINDS:
            if kind not in expected:
                setattr(self._local, kind, None)
                for each in self._listeners:
                    each.forget(kind)

    def recall(self, saved: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        """Restore what is known of this thread's images; without `saved`, only return it.

        Another call inside `generate` encodes other images meanwhile.
        """
        states = [vars(self._local), *(vars(each.thread_state) for each in self._listeners)]
        if saved is None:
            return [dict(each) for each in states]
        for state, values in zip(states, saved, strict=True):
            state.clear()
            state.update(values)
        return saved

    @property
    def has_listeners(self) -> bool:
        """Whether anything acts in the vision tower."""
        return bool(self._listeners)

    @property
    def input_ids(self) -> Tensor:
        """Of the pass under way."""
        found: Tensor = self._local.input_ids
        return found

    @property
    def media(self) -> Media:
        """The arguments of the latest calls."""
        images, videos = (getattr(self._local, kind, None) for kind in KINDS)
        return Media(self._config, images, videos, getattr(self._local, "call", None))

    def find_places(self) -> Places:
        """Where the visual tokens of the pass under way lie in their pictures."""
        images, videos = (
            [torch.stack([each.kind, each.frame, each.row, each.column]) for each in layouts]
            for layouts in self._measure_pictures()[0]
        )
        ids = self._family.visual_ids(self._config)
        found = spread_over_batch(self.input_ids, ids, images, videos, count=4)
        kind, frame, row, column = found.values
        return Places(found.medium, kind, frame, row, column, found.video)

    def place_crops(self, tower: VisionEncoderFacts) -> FoldedTiles:
        """Which patches of the tower make which visual token; for families that fold them."""
        folding = self._family.folding
        assert folding is not None
        layouts, measured = self._measure_pictures()
        return folding.place(self._base, self.media, layouts, measured, tower)

    def _measure_pictures(self) -> tuple[tuple[list[Layout], list[Layout]], Any]:
        """Their layouts, and what a folding must know of them.

        Found once for the latest pictures; after that only the shape of pixels is kept.
        """
        media, known = self.media, getattr(self._local, "measured", None)
        if known is None or known[0] is not media.images or known[1] is not media.videos:
            folding = self._family.folding if self.has_listeners else None
            measured = None if folding is None else folding.measure(media)
            known = media.images, media.videos, (self._family.layouts(media), measured)
            self._local.measured = known
            for kind in KINDS:
                arguments = getattr(self._local, kind, None) or {}
                for pixels in PIXELS:
                    if isinstance(arguments.get(pixels), Tensor):
                        arguments[pixels] = torch.empty_like(arguments[pixels], device="meta")
        found: tuple[tuple[list[Layout], list[Layout]], Any] = known[2]
        return found

    def _record(self, kind: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if getattr(self._local, "encoding", False):  # videos may pass through the image encoder
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        videos = getattr(self._local, "videos", None)
        if videos is not None and bound.arguments.get("pixel_values") is videos():
            kind = "video"  # the model has one encoder for both (PerceptionLM)
        setattr(self._local, kind, dict(bound.arguments))
        self._local.encoding = True
        try:
            for each in self._listeners:
                each.expect(kind, dict(bound.arguments))
            return original(*args, **kwargs)
        finally:
            self._local.encoding = False
            for each in self._listeners:
                each.remember(kind)


# ---- from pictures to the tokens of a batch --------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchValues:
    """Values of pictures, at their visual tokens in the batch; -1 elsewhere.

    Attributes
    ----------
    medium : Tensor
        ``(b, s)`` int64, number of the image or video within its sample.
    values : Tensor
        ``(count, b, s)`` int64.
    video : Tensor
        ``(b, s)`` bool.
    """

    medium: Tensor
    values: Tensor
    video: Tensor


def spread_over_batch(
    input_ids: Tensor,
    ids: Sequence[int],
    images: Sequence[Tensor],
    videos: Sequence[Tensor],
    count: int,
) -> BatchValues:
    """Assign the values of pictures, in order, to the visual tokens of the batch.

    Parameters
    ----------
    input_ids : Tensor
        ``(b, s)``.
    ids : sequence of int
        The image token id and, if the family has one, the video token id.
    images, videos : sequence of Tensor
        ``(count, n)`` int64 for each image and video of the batch and its ``n`` visual tokens,
        before rows were repeated for beam search.
    count : int
        How many values a token has.
    """
    table = torch.full((count + 2, *input_ids.shape), -1, dtype=torch.int64)
    tokens = input_ids.cpu()
    for token, media, is_video in zip(ids, (images, videos), (0, 1), strict=False):
        _fill(table, tokens == token, media, is_video)
    _number_media(table[0])
    table = table.to(input_ids.device)
    return BatchValues(table[0], table[1:-1], table[-1] == 1)


def _fill(table: Tensor, here: Tensor, media: Sequence[Tensor], is_video: int) -> None:
    """Write a mark of each medium, its values, and whether it is a video, in place."""
    count = int(here.sum())
    described = sum(each.shape[1] for each in media)
    if count == 0 or not media:  # without such pictures their tokens are text
        return
    if described == 0 or count % described:
        raise InputError(
            f"the prompt has {count} visual tokens, the pictures make {described}: prepare both "
            "with the model's own processor, do not truncate the prompt, and do not pass "
            "prefill_chunk_size to generate."
        )
    repeats = count // described  # beam search repeats every row
    row_of = here.nonzero()[:, 0]
    start = 0
    for each in _repeat_rows(media, row_of, repeats):
        places = here.nonzero()[start : start + each.shape[1]]
        start += each.shape[1]
        table[0, places[:, 0], places[:, 1]] = 2 * start + is_video
        table[1:-1, places[:, 0], places[:, 1]] = each
        table[-1, places[:, 0], places[:, 1]] = is_video


def _repeat_rows(media: Sequence[Tensor], row_of: Tensor, repeats: int) -> list[Tensor]:
    """Media in the order of the batch's rows, each row's repeated with its row."""
    if repeats == 1:
        return list(media)
    ordered: list[Tensor] = []
    group: list[Tensor] = []
    start = 0
    for each in media:
        end = start + each.shape[1] - 1
        if group and int(row_of[start]) != int(row_of[start - 1]):
            ordered += group * repeats
            start += sum(one.shape[1] for one in group) * (repeats - 1)
            group = []
            end = start + each.shape[1] - 1
        group.append(each)
        start = end + 1
    return ordered + group * repeats


def _number_media(medium: Tensor) -> None:
    """Number each row's media from 0, in the order of the sequence, in place."""
    for row in medium:
        seen: dict[int, int] = {}
        marks = row[row >= 0].tolist()
        for mark in marks:
            seen.setdefault(mark, len(seen))
        row[row >= 0] = torch.tensor([seen[mark] for mark in marks], dtype=torch.int64)


# ---- which tower blocks make visual tokens ---------------------------------------------------


def guess_tower(config: Any) -> tuple[int, int]:
    """Depth and feature block to ask a method with, whether it acts on the tower at all.

    Without a known depth it is asked with a large one.
    """
    vision = getattr(config, "vision_config", None)
    depth = getattr(vision, "num_hidden_layers", None) or getattr(vision, "depth", None)
    depth = depth if isinstance(depth, int) else 1000
    return depth, max(0, *find_feature_blocks(config, depth))


def find_feature_blocks(
    config: Any, depth: int, arguments: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """The tower blocks whose outputs become visual tokens; -1 for what the first block receives."""
    return tuple(each % (depth + 1) - 1 for each in read_feature_layers(config, arguments))


def read_feature_layers(config: Any, arguments: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """The hidden states that become visual tokens, as the call says, else the configuration."""
    return find_named_layers(config, arguments) or (-1,)


def find_named_layers(config: Any, arguments: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """The same; nothing if neither says: the model takes what the tower gives in the end."""
    for name in ("vision_feature_layer", "vision_feature_layers"):
        layer = (arguments or {}).get(name)
        layer = getattr(config, name, None) if layer is None else layer
        if layer is not None:
            return (layer,) if isinstance(layer, int) else tuple(layer)
    return ()
