"""Records what chosen decoder blocks work with while they run.

Fast attention never forms its weights, and eager attention forms all of them. A method wants a few
rows. So the queries, keys and rotation tables of the blocks that a method names are recorded, and
rows are computed from that when the method asks. What was recorded is dropped when the pass ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods import Method
from tokencover.pruning.attention.known_attention import KnownAttention
from tokencover.pruning.forward_pass import ForwardPass, VisualPass
from tokencover.pruning.hooks import is_aside


@dataclass(frozen=True, slots=True)
class Past:
    """The cached keys that a block attends to beside those of the pass.

    Attributes
    ----------
    layer : Any
        The layer of the cache; its keys ``(b, kv_heads, p + m, head_dim)`` are rotated already.
    length : int
        p, the number of keys from earlier passes.
    columns : Tensor or None
        ``(b, p)`` bool, which of them are real tokens; None if all are.
    readable : bool
        Whether the cache keeps its keys as they are, in one place.
    keys : Tensor or None
        Those p keys, of a layer that forgets some of them with every pass (sliding windows).
    """

    layer: Any
    length: int
    columns: Tensor | None
    readable: bool
    keys: Tensor | None = None


def find_past(cache: Any, index: int, columns: Callable[[], Tensor | None]) -> Past | None:
    """What a cache holds for a block of this index that has not run in the pass yet.

    Parameters
    ----------
    cache : Any
        The model's cache, None if it has none.
    index : int
        Of the cache's layer.
    columns : callable
        Gives which cached columns of the block are real tokens, None if all are.

    Returns
    -------
    Past or None
        None if there is nothing.
    """
    if cache is None:
        return None
    layers = getattr(cache, "layers", None)
    if layers is None:  # a cache of some other making
        length = int(cache.get_seq_length(index))
        return Past(None, length, None, readable=False) if length else None
    if index < len(layers) and not hasattr(layers[index], "get_seq_length"):
        length = int(cache.get_seq_length())  # linear attention has a state instead of keys
        return Past(layers[index], length, None, readable=False) if length else None
    length = int(layers[index].get_seq_length()) if index < len(layers) else 0
    if length == 0:
        return None
    real = columns()
    real = None if real is None else real[:, :length]
    readable = not getattr(cache, "offloading", False)
    if not getattr(layers[index], "is_sliding", False):
        return Past(layers[index], length, real, readable)
    length = int(layers[index].get_mask_sizes(0)[0])
    real = None if real is None else real[:, -length:]
    return Past(layers[index], length, real, readable, layers[index].keys[:, :, -length:])


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one block worked with in one pass; ``m`` tokens were left of the sequence.

    Attributes
    ----------
    rotation : tuple of Tensor
        Cosines and sines, ``(b or 1, m, rotated dims)`` each.
    past : Past or None
        None if the pass began with an empty cache.
    mask : Tensor or None
        What each token saw, if the block has a mask of its own, see `Projections`.
    projections : dict
        ``queries`` and ``keys``, ``(b, m, ...)`` each, for `KnownAttention.finish`.
    """

    rotation: tuple[Tensor, Tensor]
    past: Past | None
    mask: Tensor | None
    projections: dict[str, Tensor] = field(default_factory=dict)


class Recorder:
    """Records one decoder block, in passes that bring visual tokens.

    Everything is recorded detached: gradients reach a method that merges through ``view.states``.

    Parameters
    ----------
    number : int
        Of the block.
    block : nn.Module
        The block itself.
    current : callable
        Gives the pass under way, None outside of any.
    past_columns : callable
        Gives, for a block's number and a cache, which cached columns are real tokens.
    own_masks : bool
        Whether what tokens see is told by the model's own masks alone.
    """

    def __init__(
        self,
        number: int,
        block: nn.Module,
        current: Callable[[], ForwardPass | None],
        past_columns: Callable[[int, Any], Tensor | None],
        own_masks: bool = False,
    ) -> None:
        self.attention = KnownAttention(block, f"decoder block {number}")
        self._number, self._current, self._past_columns = number, current, past_columns
        self._own_masks = own_masks

    def list_hooks(self) -> Iterator[tuple[nn.Module, Callable[..., None], bool]]:
        """What to hook on which module, and whether before it runs."""
        yield self.attention.module, self._begin, True
        queries = functools.partial(self._record, "queries")
        yield self.attention.find_last_part("q"), queries, False
        keys = functools.partial(self._record, "keys")
        yield self.attention.find_last_part("k"), keys, False

    def _find_past(self, cache: Any) -> Past | None:
        """What the cache holds for the block, which has not run in this pass yet."""
        columns = functools.partial(self._past_columns, self._number, cache)
        return find_past(cache, self.attention.module.layer_idx, columns)

    def _begin(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        current = self._current()
        if not isinstance(current, VisualPass) or is_aside():
            return
        # Detached tensors are other objects: the pass is kept by the table itself, see Session.
        cosines, sines = (table.detach() for table in kwargs["position_embeddings"])
        past = self._find_past(kwargs.get("past_key_values"))
        mask = kwargs.get("attention_mask") if self._own_masks else None
        current.recorded[self._number] = Recorded((cosines, sines), past, mask)

    def _record(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
        current = self._current()
        if not isinstance(current, VisualPass) or is_aside():
            return
        if self._number not in current.recorded:
            return
        projections = current.recorded[self._number].projections
        projections[name] = output.detach()


def make_recorders(
    method: Method,
    watched: tuple[int, ...],
    blocks: Sequence[nn.Module],
    stages: Sequence[int],
    current: Callable[[], ForwardPass | None],
    past_columns: Callable[[int, Any], Tensor | None],
    own_masks: bool = False,
) -> dict[int, Recorder]:
    """One recorder for each block that the method wants to watch.

    Parameters
    ----------
    method : Method
        For messages.
    watched : tuple of int
        The blocks that it names.
    blocks : sequence of nn.Module
        All decoder blocks.
    stages : sequence of int
        The blocks before which the method acts.
    current, past_columns, own_masks
        See `Recorder`.
    """
    if any(number < 0 or number > max(stages, default=-1) for number in watched):
        raise InputError(
            f"{type(method).__name__} watches blocks {watched} and acts before blocks "
            f"{tuple(stages)}: a block can be watched only if it runs before the last of these, or "
            "is the last itself."
        )
    for number in watched:
        if not hasattr(blocks[number], "self_attn"):
            _refuse_without_attention(method, number, blocks)
    return {
        number: Recorder(number, blocks[number], current, past_columns, own_masks)
        for number in watched
    }


def _refuse_without_attention(method: Method, number: int, blocks: Sequence[nn.Module]) -> NoReturn:
    """A block of linear attention, or a convolution: say which blocks near it attend."""
    attending = [place for place, block in enumerate(blocks) if hasattr(block, "self_attn")]
    near = sorted(attending, key=lambda place: (abs(place - number), place))[:2]
    names = " or ".join(map(str, sorted(near)))
    raise InputError(
        f"{type(method).__name__} reads the attention of decoder block {number}, which has none: "
        f"it is linear attention or a convolution. Let it read block {names}, by the place where "
        "it acts, or use a method that reads no attention, for example tc.MoB."
    )
