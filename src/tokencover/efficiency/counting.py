"""Counts what the vision tower and the choosing compute, while they run.

There is no formula for these: every family has a tower of its own, and every method its own way to
choose. PyTorch's counter sees matrix products alone.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tokencover.methods import Method


class OperationCounter:
    """Counts the matrix products of the vision tower and of the choosing, while they run.

    Attributes
    ----------
    vision : int
        Operations of the vision tower and the projector, without choosing.
    selection : int
        Operations of choosing.
    """

    def __init__(self) -> None:
        self.selection = 0
        self._vision = 0
        self._selection_in_tower = 0
        self._encoding = False

    @property
    def vision(self) -> int:
        """See the class."""
        return self._vision - self._selection_in_tower

    def counted(self, method: Method) -> Method:
        """The same method; what it computes is counted."""
        counted = copy.copy(method)
        for name in ("choose", "choose_in_tower"):
            run = functools.partial(self._choosing, getattr(method, name), name)
            object.__setattr__(counted, name, run)
        return counted

    @contextmanager
    def on(self, base: Any) -> Iterator[None]:
        """Watch the calls of a multimodal model's encoder."""
        with ExitStack() as undo:
            for name in ("get_image_features", "get_video_features"):
                if not hasattr(base, name):
                    continue
                original = getattr(base, name)
                own = {name: original} if name in vars(base) else {}  # accelerate puts some there
                undo.callback(vars(base).update, own)
                undo.callback(vars(base).pop, name)
                run = functools.partial(self._encode, original)
                vars(base)[name] = functools.wraps(original)(run)
            yield

    def _choosing(self, choose: Callable[[Any], Any], name: str, view: Any) -> Any:
        with _counting() as counter:
            choice = choose(view)
        self.selection += counter.get_total_flops()
        if name == "choose_in_tower":
            self._selection_in_tower += counter.get_total_flops()
        return choice

    def _encode(self, encode: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._encoding:  # videos may pass through the image encoder
            return encode(*args, **kwargs)
        self._encoding = True
        try:
            with _counting() as counter:
                features = encode(*args, **kwargs)
        finally:
            self._encoding = False
        self._vision += counter.get_total_flops()
        return features


@contextmanager
def _counting() -> Iterator[FlopCounterMode]:
    # The counter does not know every fused attention; written out, it is two plain products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        yield counter
