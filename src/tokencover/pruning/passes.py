"""One forward pass: its tokens, what is kept of them, and the call of the model that it is part of.

A `Pass` has one writer per field. `CallState` holds what a thread leaves for later hooks.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InputError
from tokencover.methods import Choice
from tokencover.pruning.hooks import Hooks

if TYPE_CHECKING:
    from tokencover.families import Places
    from tokencover.pruning.attention.reader import Recorded
    from tokencover.pruning.decoder.layers import LayerGroup
    from tokencover.pruning.vision.encoder_reader import Encodings

PIXELS = ("pixel_values", "pixel_values_images", "pixel_values_videos")
"""Arguments with images or videos."""
LABELS = ("labels", "shift_labels")
"""Arguments that select the scored tokens."""
CONTINUOUS = (
    "Continuous batching (generate_batch, cache_implementation='paged') takes no images, and its "
    "cache cannot be pruned. Use generate, or exit the `with` block of tc.prune first."
)


@dataclass(frozen=True, slots=True)
class Kept:
    """The positions that stay, per sample in their old order, aligned to the right.

    `index` ``(b, m)`` int64 are positions in the original sequence. `valid` ``(b, m)`` is False in
    slots that only pad shorter rows.
    """

    index: Tensor
    valid: Tensor

    @classmethod
    def where(cls, keep: Tensor) -> Kept:
        """From a mask ``(b, s)`` of the positions that stay."""
        length = int(keep.sum(-1).max())
        # A stable sort of booleans moves what stays to the right without changing its order.
        index = keep.to(torch.uint8).argsort(dim=-1, stable=True)[:, keep.shape[1] - length :]
        return cls(index, keep.gather(1, index))

    def mask(self, length: int) -> Tensor:
        """The positions that stay, ``(b, length)`` bool."""
        spare = torch.zeros(len(self.index), length + 1, dtype=torch.bool, device=self.index.device)
        return spare.scatter_(1, self._send_to_spare(length), True)[:, :length]

    def take(self, tensor: Tensor) -> Tensor:
        """Shorten dimension 1 of ``(b or 1, s, ...)``."""
        index = self.index.to(tensor.device)
        rows = torch.arange(len(index), device=tensor.device).unsqueeze(-1)
        return tensor.expand(len(index), *tensor.shape[1:])[rows, index]

    def put_back(self, states: Tensor, length: int) -> Tensor:
        """Spread ``(b, m, d)`` over the original length; zeros where a token was dropped."""
        index = self._send_to_spare(length).to(states.device).unsqueeze(-1)
        full = states.new_zeros(len(states), length + 1, states.shape[-1])
        return full.scatter(1, index.expand_as(states), states)[:, :length]

    def within(self, earlier: Kept, length: int) -> Kept:
        """The same tokens, by their positions in a sequence that `earlier` shortened."""
        places = torch.arange(earlier.index.shape[1], device=self.index.device)
        slots = torch.zeros(len(self.index), length + 1, dtype=torch.int64, device=places.device)
        slots.scatter_(1, earlier._send_to_spare(length), places.expand_as(earlier.index))
        return Kept(slots.gather(1, self.index), self.valid)

    def ends_in(self, count: int, length: int) -> bool:
        """Whether the last `count` slots of every row are the last tokens of the sequence."""
        index, valid = self.index[:, -count:], self.valid[:, -count:]
        last = torch.arange(length - count, length, device=index.device)
        return index.shape[1] == count and bool((valid & (index == last)).all())

    def get_end_of_dropped(self, real: Tensor) -> int:
        """The end of the last dropped token of any row; 0 if none of ``(b, s)`` was dropped."""
        dropped = (real & ~self.mask(real.shape[1])).any(0).nonzero()
        return int(dropped.max()) + 1 if len(dropped) else 0

    def _send_to_spare(self, length: int) -> Tensor:
        """Original positions, with padding slots sent to one spare position after them."""
        return self.index.masked_fill(~self.valid, length)


def pack_left(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the True entries of each row, padded on the right, and which are no padding."""
    length = int(mask.sum(-1).max()) if mask.numel() else 0
    index = (~mask).to(torch.uint8).argsort(dim=-1, stable=True)[:, :length]
    return index, mask.gather(1, index)


@dataclass(frozen=True, eq=False, kw_only=True)
class PromptTokens:
    """The new tokens of a pass; masks are ``(b, s)`` bool.

    `real` are no padding, `visual` and `prompt` the visual and prompt tokens. `used` are visual
    tokens whose logits are used, which always stay. `past` ``(b, p)`` marks real tokens of earlier
    passes, None if unknown; `before` counts them, dropped ones too. `generation` is the one without
    a cache that the pass is a step of. `both_directions` says that tokens of one image attend to
    each other in both directions.
    """

    real: Tensor
    visual: Tensor
    prompt: Tensor
    used: Tensor
    past: Tensor | None = None
    before: int = 0
    locate: Callable[[], Places] | None = None
    generation: Generation | None = None
    both_directions: bool = False

    @property
    def has_visual(self) -> bool:
        """Whether the pass brings visual tokens."""
        return self.locate is not None

    @functools.cached_property
    def places(self) -> Places:
        """Grid locations of the visual tokens; known when decoder layers run."""
        assert self.locate is not None
        return self.locate()


@dataclass(slots=True, weakref_slot=True, eq=False)
class Pass:
    """What happens to a batch on its way through the model; comments name the writers."""

    tokens: PromptTokens  # call_inputs
    # prune: the decoder layer that began last, and its cache
    layer_idx: int = -1
    cache: Any = None
    # selection: per pruning layer that was reached, what is kept (None if all is); the position
    # ``(b, s)`` int64 whose state each position holds if a method moved states, -1 for none
    kept: dict[int, Kept | None] = field(default_factory=dict)
    sources: Tensor | None = None
    seconds: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)
    # decoder.layers: the first layer that the decoder itself gives shortened inputs (Gemma 4)
    groups: dict[int | None, LayerGroup] = field(default_factory=dict)
    cut_from: int | None = None
    recorded: dict[int, Recorded] = field(default_factory=dict)  # attention.reader
    # selection, if the method reads the vision encoder: its output, and states before layer 0
    encodings: Encodings | None = None
    entered: Tensor | None = None

    @property
    def length(self) -> int:
        """Number of new tokens per row."""
        return self.tokens.real.shape[1]

    def find_kept(self, layer_idx: int) -> Kept | None:
        """What is kept when this layer begins; None if nothing was dropped before."""
        kept = None
        for stage in sorted(self.kept):
            if stage <= layer_idx and self.kept[stage] is not None:
                kept = self.kept[stage]
        return kept


class CallState(threading.local):
    """What the calls of one thread leave for later hooks, with a slot per owner.

    `current` is the pass under way, `entered` that of the layer that began last, and `is_rerun`
    whether gradient checkpointing runs that layer again (all by `prune`). `labels`, `generation`
    and `prepared` belong to `ModelCalls`; `encoders`, `merging` and `reading` to `EncoderCalls`,
    `VisionMerger` and `VisionReader`, which keep the latest images and videos until the pass takes
    them.
    """

    def __init__(self) -> None:
        self.current: Pass | None = None
        self.entered: weakref.ref[Pass] | None = None
        self.is_rerun = False
        self.labels: dict[str, Tensor] = {}
        self.generation: Generation | None = None
        self.prepared: tuple[int, ...] | None = None
        media = {"image": None, "video": None}
        self.encoders = SimpleNamespace(
            **media, input_ids=None, call=None, videos=None, measured=None, encoding=False
        )
        self.merging = SimpleNamespace(**media, run=None, media=None)
        self.reading = SimpleNamespace(**media, recording=None, blocks=None, expected=False)

    def end_pass(self, *, keeps_inputs: bool = False) -> None:
        """Forget the pass under way, after an error too.

        Gradient checkpointing asks a merging method again in backward: `keeps_inputs` keeps what it
        reads.
        """
        current, self.current = self.current, None
        if current is None:
            return
        if hasattr(current.cache, "end_pass"):  # a pruned cache
            current.cache.end_pass()
        current.cache = None
        if current.tokens.has_visual:
            self.reading.image = self.reading.video = None
            if not keeps_inputs:
                current.recorded.clear()
                current.encodings = current.entered = None


@dataclass(slots=True)
class Generation:
    """The selection for the prompt that `generate`, or a loop inside `hold`, continues.

    Without a cache every step processes the prompt again and keeps its selection, as with a cache.
    Other calls of the model meanwhile, for example by a logits processor, are not part of it.
    `choices` are per pruning layer. `held` marks a loop of the caller, who may pass another prompt.
    `length`, `encoded`, `prompt` and `used` are from the first pass: its number of tokens, how its
    images were encoded, its ids and pixels, and its visual tokens ``(b, s)`` with used logits.
    """

    choices: dict[int, Choice] = field(default_factory=dict)
    held: bool = False
    length: int | None = None
    encoded: list[dict[str, Any]] | None = None
    prompt: Mapping[str, Any] | None = None
    used: Tensor | None = None

    def recall_used(self, used: Tensor) -> Tensor:
        """The visual tokens ``(b, s)`` whose logits are used, now or in the first pass."""
        if self.used is None:
            self.used = used
        more = used.shape[1] - self.used.shape[1]
        return used | torch.nn.functional.pad(self.used, (0, more))

    def check_prompt(self, arguments: Mapping[str, Any]) -> None:
        """Raise if a pass is about another prompt than the first."""
        given = {name: arguments.get(name) for name in ("input_ids", *PIXELS)}
        if self.prompt is None:
            self.prompt = given
        elif not all(_begins_with(each, self.prompt[name]) for name, each in given.items()):
            raise InputError(
                "The selection was made for another prompt. Inside the `with` of hold() every "
                "prompt must begin with the first one and have its images. Use another `with` for "
                "the next prompt."
            )


def _begins_with(values: Any, first: Any) -> bool:
    """Whether token ids or pixels are those of the prompt, maybe with more ids after them."""
    if values is first or not isinstance(values, Tensor) or not isinstance(first, Tensor):
        return values is first
    return torch.equal(values[:, : first.shape[1]], first)


class ModelCalls:
    """Records the call of a model that is under way: labels, `generate` and its steps."""

    def __init__(self, model: nn.Module, state: CallState) -> None:
        self._model, self._state = model, state

    def watch(self, hooks: Hooks) -> None:
        """Put hooks on the whole model."""
        # Not hooks on the module: adapters call its forward directly.
        hooks.around(self._model, "forward", self._forward, compiled=True)
        if hasattr(self._model, "generate"):
            hooks.around(self._model, "generate", self._generate, compiled=True)
            hooks.around(self._model, "prepare_inputs_for_generation", self._prepare)
        if hasattr(self._model, "init_continuous_batching"):
            hooks.around(self._model, "init_continuous_batching", _reject_continuous_batching)

    def _forward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        given = kwargs
        if args:
            names = inspect.signature(type(self._model).forward).parameters
            given = {**dict(zip(list(names)[1:], args, strict=False)), **kwargs}
        found = {name: given.get(name) for name in LABELS}
        self._state.labels = {name: each for name, each in found.items() if each is not None}
        try:
            return original(*args, **kwargs)
        finally:
            self._state.labels = {}

    def hold(self) -> AbstractContextManager[None]:
        """Select once for all calls of this thread meanwhile that have no cache."""
        return self._continue(Generation(held=True))

    def take_generation(self, shape: tuple[int, int]) -> Generation | None:
        """The generation that a pass of this shape is a step of; None for any other call.

        `generate` prepares the inputs of each of its steps just before it calls the model.
        """
        prepared, self._state.prepared = self._state.prepared, None
        found = self._state.generation
        return found if found is not None and (found.held or prepared == shape) else None

    def _generate(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._continue(Generation()):
            return original(*args, **kwargs)

    def _prepare(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        given = [found.get(name) for name in ("input_ids", "inputs_embeds")]
        self._state.prepared = next((tuple(e.shape[:2]) for e in given if e is not None), None)
        return found

    @contextmanager
    def _continue(self, generation: Generation) -> Iterator[None]:
        outer = self._state.generation
        self._state.generation = generation
        try:
            yield
        finally:
            self._state.generation, self._state.prepared = outer, None


def _reject_continuous_batching(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    raise InputError(CONTINUOUS)


# ---- gradient checkpointing ------------------------------------------------------------------


class RerunPasses:
    """Remembers passes until no backward can run their layers again.

    A forward belongs to the pass under way. In backward, gradient checkpointing runs a layer again
    with the arguments of its pass: the rotary embedding is the same object, and the hidden states
    share their storage. The first names the pass, unless the model reuses one rotary embedding for
    several passes; then the second does.
    """

    def __init__(self) -> None:
        self._passes: Any = WeakIdKeyDictionary()
        self._unrotated: list[_Entered] = []

    def find_pass(
        self, current: Pass | None, layer_idx: int, states: Tensor, rotation: Any
    ) -> Pass | None:
        """The pass of a layer call with input ``(b, s, d)``; None outside of all passes."""
        known = self._list_passes(rotation)
        if not runs_backward():
            if current is not None:
                _remember(known, current, layer_idx, states)
            return current
        found = known if len(known) == 1 else [e for e in known if e.had(layer_idx, states)]
        if len(found) > 1 or (known and not found):
            raise InputError(
                f"Gradient checkpointing runs decoder layer {layer_idx} again, but {len(known)} "
                "passes share its rotary embedding, and its hidden states were moved. Run one "
                "backward per forward, or do not reuse rotary embeddings."
            )
        return found[0].run if found else None

    def _list_passes(self, rotation: Any) -> list[_Entered]:
        if rotation is None:
            return self._unrotated
        key = rotation if isinstance(rotation, Tensor) else rotation[0]
        found: list[_Entered] = self._passes.setdefault(key, [])
        return found


class _Entered:
    """A pass, and the storage of the hidden states that entered each of its layers."""

    def __init__(self, run: Pass) -> None:
        self.run, self.storages = run, dict[int, StorageWeakRef]()

    def had(self, layer_idx: int, states: Tensor) -> bool:
        """Whether these hidden states entered the layer in this pass."""
        storage = self.storages.get(layer_idx)
        return storage is not None and storage == StorageWeakRef(states.untyped_storage())

    def is_over(self) -> bool:
        """Whether nothing keeps the hidden states for a backward."""
        return all(storage.expired() for storage in self.storages.values())


def _remember(known: list[_Entered], current: Pass, layer_idx: int, states: Tensor) -> None:
    """Record that these hidden states enter a layer; forget passes that are over."""
    found = next((each for each in known if each.run is current), None)
    if found is None:
        found = _Entered(current)
        known[:] = [*(each for each in known if not each.is_over()), found]
    found.storages[layer_idx] = StorageWeakRef(states.untyped_storage())


def runs_backward() -> bool:
    """Whether autograd is running a backward in this thread, as torch's checkpoint asks it."""
    return torch._C._current_graph_task_id() != -1
