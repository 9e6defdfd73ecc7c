"""The shared test list: one row per method. Add a row for a new method here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.zoo.entry import ZooEntry
from tokencover.methods import METHODS, BudgetedMethod, FastV, Method, get_method
from tokencover.pruning import Trace

IMAGES = ("ragged", "two_images", "mixed")
MAKES = ("llava", "llava_next", "qwen2_5_vl", "qwen3_vl", "video_llava", "smolvlm", "gemma3")
"""One family of each make: tiles, windows, DeepStack, videos, rows with marks, own masks."""
FOLDED_ALIKE = ("qwen2_vl", "qwen3_vl", "idefics3")
"""Read like Qwen2.5-VL and SmolVLM: two methods are enough."""


def _budget(trace: Trace, method: Method, newlines: int) -> int:
    """The budget; newline tokens come on top, unless the method may drop them."""
    assert isinstance(method, BudgetedMethod)
    assert isinstance(method.budget, int)
    extra = 0 if method.drops_newlines else newlines
    return min(method.budget, trace.visual_tokens - extra) + extra


def _nothing(trace: Trace, method: Method, newlines: int) -> int:
    """Wiped in the end."""
    return 0


@dataclass(frozen=True)
class Case:
    """How a method is tried.

    Attributes
    ----------
    method
        Its name.
    settings
        What it is made with; the tiny models have five decoder layers.
    expected
        How many visual tokens must be left of a sample; None for methods that merge in the vision
        encoder, whose counts depend on the crops (see `test_vision_merging`).
    keeps_all
        Whether a budget of everything gives the unpruned model.
    moves
        Whether it writes states to other tokens' slots, so that kept tokens need not ascend.
    images
        The kinds of batch that it is tried on, as far as a family has them.
    like
        Another method that asks a model for the same things at the same place, and is tried on
        every family; this one is tried on one family of each make.
    """

    method: str
    settings: dict[str, Any] = field(default_factory=lambda: {"budget": 7})
    expected: Callable[[Trace, Method, int], int] | None = _budget
    keeps_all: bool = True
    moves: bool = False
    images: tuple[str, ...] = (*IMAGES, "video")
    like: str | None = None

    @property
    def id(self) -> str:
        return self.method

    def make(self, **changes: Any) -> Method:
        return get_method(self.method, **{**self.settings, **changes})

    def kinds(self, entry: ZooEntry) -> list[str]:
        few = () if entry.name in MAKES else ("two_images",)
        return [kind for kind in self.images if kind in entry.kinds and kind not in few]

    def tells_new(self, entry: ZooEntry) -> bool:
        """Whether no other family or method tells the same."""
        if self.like is not None and entry.name not in MAKES:
            return False
        reads_alone = "vision attention" in METHODS[self.method].card.needs and self.method not in (
            "fastervlm", "visionzip",
        )  # fmt: skip
        return entry.alike is None and not (reads_alone and entry.name in FOLDED_ALIKE)


CASES = [
    Case("mob"),
    Case("nearest", like="mob"),
    Case("farthest", like="mob"),
    Case("mob_stages", {"budget": 7, "folded": 0.3}),
    Case("fastv"),
    Case("sparsevlm", moves=True),
    Case("pyramiddrop"),
    Case("dart"),
    Case("tokencarve"),
    Case("divprune"),
    Case("cdpruner", like="divprune"),
    Case("scope", like="fastervlm"),
    Case("fastervlm"),
    Case("hired", like="fastervlm"),
    Case("visionzip", moves=True),
    Case("prumerge", moves=True, like="visionzip"),
    Case("prumerge+", moves=True, like="visionzip"),
    Case("globalcom2", images=("ragged", "mixed")),  # several images may come without tiles
    Case("mustdrop"),
    Case("tome", {"budget": 0.5}, expected=None),
    Case("ficoco_v", {"budget": 0.5}, expected=None),
    Case("look_ahead", expected=_nothing, keeps_all=False),
    Case("final_wipe", {"inner": FastV(7)}, expected=_nothing, keeps_all=False),
    Case("random", like="mob"),
    Case("grid", like="mob"),
    Case("downsample", like="divprune"),
]
