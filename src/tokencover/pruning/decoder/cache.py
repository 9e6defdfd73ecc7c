"""Caches whose layers differ in length.

What must be known about them is part of the cache itself: it stays valid when the cache is copied,
pickled, cropped or its rows are reordered, and a pruned cache raises an error without the pruning
that filled it.

Why not layer classes with a mask each, since `Cache` delegates to ``cache.layers[i]``: transformers
has a dozen of them, and masking asks for their types. Every one would need a derived class that is
swapped in, pickled and swapped out like the one here, and the length of the whole sequence, the
announcements and the check of `crop` concern all layers together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tokencover.errors import InputError

_DERIVED: dict[type, type] = {}
"""For each class of caches, the derived class of a pruned cache."""


@dataclass(frozen=True, slots=True)
class Pruning:
    """What a cache has in common with the passes that may continue it.

    `groups` are the first layers of groups that share a length, ascending. `positions` is that of
    `Method`; `own_masks` says that masks are cut from those of the whole sequence.
    """

    groups: tuple[int, ...]
    positions: str
    own_masks: bool = False

    def __str__(self) -> str:
        layers = ", ".join(map(str, self.groups))
        return f"pruned before layers {layers}, positions {self.positions!r}"


@dataclass(slots=True)
class CacheMemory:
    """Which cached columns are real tokens, for the layers that hold shortened sequences.

    `masks` ``(b, cached length)`` bool and `origins` int64, positions in the whole sequence, are
    per group. `missing` is how much shorter than the sequence the first layer with a length is,
    `lacking` how much the next update adds to that. `whole` is the end of the last dropped token.
    `expected` is the layer that updates the cache next, None outside of passes. While `measuring`,
    the cache reports true lengths.
    """

    pruning: Pruning
    masks: dict[int, Tensor] = field(default_factory=dict)
    origins: dict[int, Tensor] = field(default_factory=dict)
    missing: int = 0
    whole: int = 0
    expected: int | None = None
    lacking: int = 0
    measuring: bool = False

    def arrange_rows(self, arrange: Callable[[Tensor], Tensor]) -> None:
        """Rearrange the rows of the masks like those of the cache."""
        self.masks = {group: arrange(mask) for group, mask in self.masks.items()}
        self.origins = {group: arrange(origins) for group, origins in self.origins.items()}

    def crop(self, count: int) -> None:
        """Remove the newest tokens."""
        self.masks = {group: mask[:, :-count] for group, mask in self.masks.items()}
        self.origins = {group: origins[:, :-count] for group, origins in self.origins.items()}


class PrunedCache:
    """Precedes the class of a transformers cache, see `mark_pruned`."""

    _memory: CacheMemory
    layers: list[Any]

    def get_seq_length(self, layer_idx: int = 0) -> Any:
        """Length of the whole sequence for layer 0; true lengths of the other layers.

        transformers reads the length of layer 0, or of the first layer that has one, to number new
        tokens and to locate the end of a chat. It is wrong only if tokens are dropped before that
        layer.
        """
        length = self.measure(layer_idx)
        if self._memory.measuring or layer_idx != 0 or int(length) == 0:
            return length
        return length + self._memory.missing

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> Any:
        """Columns of a mask, and their offset: those of the whole sequence, if it is cut later."""
        if self._memory.pruning.own_masks and not self._memory.measuring:
            return int(self.get_seq_length()) + query_length, 0
        return super().get_mask_sizes(query_length, layer_idx)  # type: ignore[misc]

    def get_query_offset(self, layer_idx: int = 0) -> Any:
        """The position of the first new token, see `get_mask_sizes`."""
        if self._memory.pruning.own_masks and not self._memory.measuring:
            return int(self.get_seq_length())
        return super().get_query_offset(layer_idx)  # type: ignore[misc]

    def measure(self, layer_idx: int) -> Any:
        """The true length of a layer."""
        return super().get_seq_length(layer_idx)  # type: ignore[misc]

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Add to a layer, if a pruned model announced it."""
        found = self._open(layer_idx).update(keys, values, layer_idx, *args, **kwargs)
        if isinstance(self, PrunedCache):
            self._memory.missing += self._memory.lacking
            self._memory.lacking = 0
        return found

    def get_conv_state(self, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """The state of a convolution; layers change it in place, so it is announced too."""
        return self._open(layer_idx).get_conv_state(layer_idx, *args, **kwargs)

    def update_conv_state(self, states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """Replace the state of a convolution."""
        return self._open(layer_idx).update_conv_state(states, layer_idx, *args, **kwargs)

    def get_recurrent_state(self, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        """The state of linear attention."""
        return self._open(layer_idx).get_recurrent_state(layer_idx, *args, **kwargs)

    def update_recurrent_state(
        self, states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> Any:
        """Replace the state of linear attention."""
        return self._open(layer_idx).update_recurrent_state(states, layer_idx, *args, **kwargs)

    def _open(self, layer: int) -> Any:
        """The cache without these overrides, if a pruned model announced a layer.

        A cache that was emptied starts again without pruning.
        """
        if self._memory.expected == layer:
            return super()
        if self._is_empty():
            mark_unpruned(self)
            return self
        raise InputError(
            f"This cache holds a prompt whose visual tokens were {self._memory.pruning}, so only a "
            "model pruned by the same method can continue it. Stay inside the `with` of tc.prune, "
            "or start with a new cache."
        )

    def _is_empty(self) -> bool:
        """Whether no layer holds anything."""
        states = (getattr(layer, "has_previous_state", {}) for layer in self.layers)
        return int(self.measure(0)) == 0 and not any(any(each.values()) for each in states)

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the newest tokens: so many if the number is negative, else all after so many."""
        total = int(self.get_seq_length())
        count = -tokens_to_remove if tokens_to_remove <= 0 else total - tokens_to_remove
        if count > 0 and total - count < self._memory.whole:
            raise InputError(
                f"crop({tokens_to_remove}) would cut into a prompt whose visual tokens were "
                f"dropped. Of {total} tokens, remove at most the newest "
                f"{total - self._memory.whole}."
            )
        if count > 0:
            self._require_plain_layers("crop")
            self._memory.crop(count)
        for layer in self.layers if count >= 0 else ():
            if count > 0 or getattr(layer, "record_past", False):  # shed what was recorded
                layer.crop(-count)

    def reset(self) -> None:
        """Empty the cache, and make it an ordinary one."""
        super().reset()  # type: ignore[misc]
        mark_unpruned(self)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Take rows in another order."""
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        self._memory.arrange_rows(lambda mask: mask[beam_idx.to(mask.device)])

    def batch_select_indices(self, indices: Tensor) -> None:
        """Take some of the rows."""
        self._require_plain_layers("batch_select_indices")
        super().batch_select_indices(indices)  # type: ignore[misc]
        self._memory.arrange_rows(lambda mask: mask[indices.to(mask.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        self._require_plain_layers("batch_repeat_interleave")
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        self._memory.arrange_rows(lambda mask: mask.repeat_interleave(repeats, dim=0))

    def _require_plain_layers(self, name: str) -> None:
        """Raise for layers without this method; quantized ones change only a part."""
        for layer in self.layers:
            kind = type(layer).__name__
            if hasattr(layer, "_quantized_keys"):
                raise InputError(
                    f"{name} does not change what a {kind} has quantized. Use a DynamicCache."
                )
            if name == "crop" and not _can_crop(layer):
                raise InputError(
                    f"A {kind} cannot remove its newest tokens. Copy the cache (copy.deepcopy) "
                    "before they are added, and continue from the copy."
                )
            if not hasattr(layer, name):
                raise InputError(f"A {kind} has no {name}. Select rows with reorder_cache.")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restore, (type(self).__bases__[1], vars(self))

    # ---- for passes that continue the cache -------------------------------------------------

    def announce(self, layer_idx: int, pruning: Pruning) -> None:
        """A pruned model is about to add to the cache layer of this decoder layer."""
        if layer_idx == 0 and self._is_empty():  # it was emptied, and starts again
            self._memory = CacheMemory(pruning)
        if pruning != self._memory.pruning:
            raise InputError(
                f"This cache was {self._memory.pruning}, but this model is {pruning}. Continue "
                "with the method that filled the cache, or start with a new cache."
            )
        self._memory.expected = layer_idx

    def end_pass(self) -> None:
        """Reject updates until the next announcement."""
        self._memory.expected, self._memory.lacking = None, 0

    def get_columns(self, group: int) -> Tensor | None:
        """Which columns of a group's layers are real tokens, ``(b, cached length)`` bool.

        None if nothing was dropped there. Newer columns may have been cropped since.
        """
        return self._cut_to_length(group, self._memory.masks.get(group))

    def get_origins(self, group: int) -> Tensor | None:
        """Positions of these columns in the whole sequence, ``(b, cached length)`` int64."""
        return self._cut_to_length(group, self._memory.origins.get(group))

    def _cut_to_length(self, group: int, remembered: Tensor | None) -> Tensor | None:
        end = min((first for first in self._memory.pruning.groups if first > group), default=None)
        measured = find_first_measured(self, group, end)
        if remembered is None or measured is None:
            return remembered
        return remembered[:, : int(self.measure(measured))]

    def remember(self, group: int, columns: Tensor, origins: Tensor | None) -> None:
        """Keep the columns of a group for later passes."""
        self._memory.masks[group] = columns
        if origins is not None:
            self._memory.origins[group] = origins

    def record_dropped(self, whole: int) -> None:
        """Record the end of the last dropped token."""
        self._memory.whole = max(whole, self._memory.whole)

    def record_lacking(self, layer_idx: int, count: int) -> None:
        """Record by how much the next update is shorter than the new text."""
        self._memory.lacking = count if layer_idx == find_first_measured(self) else 0

    @contextmanager
    def report_true_lengths(self) -> Iterator[None]:
        """Make the cache report its true lengths, to size an attention mask."""
        self._memory.measuring = True
        try:
            yield
        finally:
            self._memory.measuring = False


def find_first_measured(cache: Any, begin: int = 0, end: int | None = None) -> int | None:
    """The first layer of a cache with a length, from `begin` to `end`; None without any.

    Linear attention and convolutions have none. Layers that do not exist yet will have one.
    """
    layers = getattr(cache, "layers", [])
    end = max(len(layers), begin + 1) if end is None else end
    places = range(begin, end)
    return next(
        (n for n in places if n >= len(layers) or hasattr(layers[n], "get_seq_length")), None
    )


def _can_crop(layer: Any) -> bool:
    """Whether a layer can drop its newest tokens; a full window has lost those before it."""
    if not (hasattr(layer, "crop") and layer.is_croppable):
        return False
    window = getattr(layer, "sliding_window", None)
    if window is None or getattr(layer, "record_past", False):
        return True
    return bool(int(layer.get_seq_length()) < window)


def check_lengths(cache: Any) -> None:
    """Reject a cache whose layers differ in length without a record of why.

    Keys and values of a pruned cache that were put into another one by hand do, and so does a cache
    after an error.
    """
    if cache is None or isinstance(cache, PrunedCache):
        return
    from transformers.cache_utils import DynamicLayer  # the length of these is that of their keys

    layers = [each for each in getattr(cache, "layers", ()) if type(each) is DynamicLayer]
    lengths = {each.keys.shape[-2] for each in layers if each.keys is not None}
    if len(lengths) > 1:
        raise InputError(
            f"The layers of this cache differ in length ({sorted(lengths)}) without a record of "
            "why. Keys and values of a pruned prompt do not record what was dropped: copy its "
            "cache with copy.deepcopy, or start with a new one."
        )


def mark_pruned(cache: Any, pruning: Pruning) -> PrunedCache:
    """Make a cache remember that it was pruned; it stays the same object."""
    if not isinstance(cache, PrunedCache):
        cache.__class__ = _derive(type(cache))
        cache._memory = CacheMemory(pruning)
    found: PrunedCache = cache
    return found


def mark_unpruned(cache: PrunedCache) -> None:
    """Make it an ordinary cache again."""
    del cache._memory
    cache.__class__ = type(cache).__bases__[1]


def _derive(kind: type) -> Any:
    """The class of a cache, preceded by `PrunedCache`."""
    if kind not in _DERIVED:
        name, members = f"Pruned{kind.__name__}", {"__module__": kind.__module__}
        _DERIVED[kind] = type(name, (PrunedCache, kind), members)
    return _DERIVED[kind]


def _restore(kind: Any, state: dict[str, Any]) -> Any:
    """A copied or pickled cache."""
    found = kind.__new__(kind)
    vars(found).update(state)
    found.__class__ = _derive(kind)
    return found
