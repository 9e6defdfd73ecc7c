"""How the pictures of a pass were encoded: their grids are known nowhere else."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.runtime.encoder import Encoder
from tokencover.runtime.family import Family, Media
from tokencover.runtime.forward_pass import PIXELS, Places, places_of
from tokencover.runtime.hooks import Hooks
from tokencover.runtime.layout import Layout
from tokencover.runtime.tower import Towers

KINDS = ("image", "video")


class EncoderCalls:
    """Remembers, for each thread, the latest calls of a model's picture and video encoders.

    `generate` encodes before the model's own forward, so the calls are watched where they happen.

    Parameters
    ----------
    model : nn.Module
        The whole model.
    family : Family
        Says where its encoders are, and what layouts they make.
    listeners : sequence
        Those who act in the vision tower; they are told of each call.
    """

    def __init__(
        self, model: nn.Module, family: Family, listeners: Sequence[Towers | Encoder]
    ) -> None:
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

    def begin(self, input_ids: Tensor, expected: Sequence[str]) -> None:
        """A pass with visual tokens begins; what is not `expected` to be known is forgotten."""
        self._local.input_ids = input_ids
        for kind in KINDS:
            if kind not in expected:
                setattr(self._local, kind, None)
                for each in self._listeners:
                    each.forget(kind)

    @property
    def input_ids(self) -> Tensor:
        """Of the pass under way."""
        found: Tensor = self._local.input_ids
        return found

    def media(self) -> Media:
        """The arguments of the latest calls."""
        images, videos = (getattr(self._local, kind, None) for kind in KINDS)
        return Media(self._config, images, videos)

    def places(self) -> Places:
        """Where the visual tokens of the pass under way lie in their pictures."""
        ids = self._family.visual_ids(self._config)
        return places_of(self.input_ids, ids, *self._layouts())

    def _layouts(self) -> tuple[list[Layout], list[Layout]]:
        """Found once for the latest pictures; behind that only the shape of pixels is kept."""
        media, known = self.media(), getattr(self._local, "layouts", None)
        if known is None or known[0] is not media.images or known[1] is not media.videos:
            known = media.images, media.videos, self._family.layouts(media)
            self._local.layouts = known
            for kind in KINDS:
                arguments = getattr(self._local, kind, None) or {}
                for pixels in PIXELS:
                    if isinstance(arguments.get(pixels), Tensor):
                        arguments[pixels] = torch.empty_like(arguments[pixels], device="meta")
        found: tuple[list[Layout], list[Layout]] = known[2]
        return found

    def _record(self, kind: str, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if getattr(self._local, "encoding", False):  # videos may pass through the image encoder
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
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
