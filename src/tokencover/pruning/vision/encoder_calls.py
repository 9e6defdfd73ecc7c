"""How the images of a pass were encoded, which is where their grids are known."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from tokencover.pruning.passes import PIXELS, CallState

if TYPE_CHECKING:
    from tokencover.pruning.vision.encoder_reader import VisionReader
    from tokencover.pruning.vision.merger import VisionMerger

KINDS = ("image", "video")


class EncoderCalls:
    """Remembers, per thread, the latest `get_image_features` and `get_video_features` calls.

    `generate` encodes before the model's own forward, so the calls are watched where they happen.
    """

    def __init__(
        self,
        model: nn.Module,
        family: Family,
        listeners: Sequence[VisionMerger | VisionReader],
        state: CallState,
    ) -> None:
        self._config: Any = model.config
        self._base = model.get_submodule(family.base)
        self._family, self._listeners = family, listeners
        self.has_listeners = bool(listeners)  # whether the method acts in the vision encoder
        self._state = state

    def watch(self, hooks: Hooks) -> None:
        """Wrap the encoders."""
        for kind in KINDS:
            name = f"get_{kind}_features"
            if hasattr(self._base, name):
                hooks.around(self._base, name, functools.partial(self._record, kind))

    def begin(self, arguments: Mapping[str, Any], expected: Sequence[str]) -> None:
        """Start a pass with visual tokens; drop what is not `expected` to be encoded already."""
        self._state.encoders.input_ids = arguments["input_ids"]
        self._state.encoders.call = {name: arguments.get(name) for name in self._family.call_names}
        videos = arguments.get("pixel_values_videos")
        self._state.encoders.videos = weakref.ref(videos) if isinstance(videos, Tensor) else None
        for kind in KINDS:
            if kind not in expected:
                setattr(self._state.encoders, kind, None)
                for each in self._listeners:
                    each.forget(kind)

    def recall(self, saved: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        """Restore what is known of this thread's images; without `saved`, only return it.

        Another call inside `generate` may encode other images meanwhile.
        """
        known = self._state
        states = [vars(each) for each in (known.encoders, known.merging, known.reading)]
        if saved is None:
            return [dict(each) for each in states]
        for state, values in zip(states, saved, strict=True):
            state.clear()
            state.update(values)
        return saved

    @property
    def input_ids(self) -> Tensor:
        """Token ids of the current pass."""
        found: Tensor = self._state.encoders.input_ids
        return found

    @property
    def media(self) -> Media:
        """The arguments of the latest calls."""
        known = self._state.encoders
        return Media(self._config, known.image, known.video, known.call)

    def locate_tokens(self) -> Places:
        """Grid locations of the visual tokens of the current pass."""
        images, videos = (
            [torch.stack([each.kind, each.frame, each.row, each.column]) for each in layouts]
            for layouts in self._measure_media()[0]
        )
        ids = self._family.visual_ids(self._config)
        medium, values, video = spread_over_batch(self.input_ids, ids, images, videos, count=4)
        kind, frame, row, column = values
        return Places(medium, kind, frame, row, column, video)

    def place_crops(self, encoder: VisionEncoderFacts) -> FoldedTiles:
        """Which patches make which visual token; for families with `folding`."""
        folding = self._family.folding
        assert folding is not None
        layouts, measured = self._measure_media()
        return folding.place(self._base, self.media, layouts, measured, encoder)

    def _measure_media(self) -> tuple[tuple[list[Layout], list[Layout]], Any]:
        """Layouts of the latest images and videos, and measures for `folding`.

        Computed once per call; afterwards only the shape of the pixels is kept.
        """
        media, known = self.media, self._state.encoders.measured
        if known is None or known[0] is not media.images or known[1] is not media.videos:
            folding = self._family.folding if self.has_listeners else None
            measured = None if folding is None else folding.measure(media)
            known = media.images, media.videos, (self._family.layouts(media), measured)
            self._state.encoders.measured = known
            for kind in KINDS:
                arguments = getattr(self._state.encoders, kind) or {}
                for pixels in PIXELS:
                    if isinstance(arguments.get(pixels), Tensor):
                        arguments[pixels] = torch.empty_like(arguments[pixels], device="meta")
        found: tuple[tuple[list[Layout], list[Layout]], Any] = known[2]
        return found

    def _record(self, kind: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._state.encoders.encoding:  # videos may pass through the image encoder
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        videos = self._state.encoders.videos
        if videos is not None and bound.arguments.get("pixel_values") is videos():
            kind = "video"  # the model has one encoder for both (PerceptionLM)
        setattr(self._state.encoders, kind, dict(bound.arguments))
        self._state.encoders.encoding = True
        try:
            for each in self._listeners:
                each.begin(kind, dict(bound.arguments))
            return original(*args, **kwargs)
        finally:
            self._state.encoders.encoding = False
            for each in self._listeners:
                each.finish(kind)


# ---- from images to the tokens of a batch ----------------------------------------------------


def spread_over_batch(
    input_ids: Tensor,
    ids: Sequence[int],
    images: Sequence[Tensor],
    videos: Sequence[Tensor],
    count: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Assign values ``(count, n)`` of each image and video, in order, to visual tokens.

    Returns the number of the medium within its sample ``(b, s)``, values ``(count, b, s)``, both
    int64 and -1 elsewhere, and which tokens are of videos. `ids` has the image token id and, if the
    family has one, the video token id. Media are those before rows were repeated for beam search.
    """
    table = torch.full((count + 2, *input_ids.shape), -1, dtype=torch.int64)
    tokens = input_ids.cpu()
    for token, media, is_video in zip(ids, (images, videos), (0, 1), strict=False):
        _fill(table, tokens == token, media, is_video)
    _number_media(table[0])
    table = table.to(input_ids.device)
    return table[0], table[1:-1], table[-1] == 1


def _fill(table: Tensor, here: Tensor, media: Sequence[Tensor], is_video: int) -> None:
    """Write a mark of each medium, its values, and whether it is a video, in place."""
    count = int(here.sum())
    described = sum(each.shape[1] for each in media)
    if count == 0 or not media:  # without such media their tokens are text
        return
    if described == 0 or count % described:
        raise InputError(
            f"The prompt has {count} visual tokens, but its images make {described}. Prepare both "
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
    """Media in the order of the batch's rows, repeated with their rows."""
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
    """Number the media of each row from 0, in place."""
    for row in medium:
        seen: dict[int, int] = {}
        marks = row[row >= 0].tolist()
        for mark in marks:
            seen.setdefault(mark, len(seen))
        row[row >= 0] = torch.tensor([seen[mark] for mark in marks], dtype=torch.int64)


# ---- which encoder blocks make visual tokens ---------------------------------------------------


def guess_vision_encoder(config: Any) -> tuple[int, int]:
    """Depth and feature block for asking a method whether it acts in the vision encoder.

    A model that does not say its depth gets a large one.
    """
    vision = getattr(config, "vision_config", None)
    depth = getattr(vision, "num_hidden_layers", None) or getattr(vision, "depth", None)
    depth = depth if isinstance(depth, int) else 1000
    return depth, max(0, *get_feature_blocks(config, depth))


def get_feature_blocks(
    config: Any, depth: int, arguments: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """Blocks whose outputs become visual tokens; -1 for the input of the first block."""
    return tuple(each % (depth + 1) - 1 for each in read_feature_layers(config, arguments))


def read_feature_layers(config: Any, arguments: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """Indices of the hidden states that become visual tokens, from call or configuration."""
    return get_named_layers(config, arguments) or (-1,)


def get_named_layers(config: Any, arguments: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """The same, but empty if neither names any: the model takes the final output."""
    for name in ("vision_feature_layer", "vision_feature_layers"):
        layer = (arguments or {}).get(name)
        layer = getattr(config, name, None) if layer is None else layer
        if layer is not None:
            return (layer,) if isinstance(layer, int) else tuple(layer)
    return ()
