"""Which pass a decoder layer runs for, also when gradient checkpointing runs it again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakIdKeyDictionary

from tokencover.errors import InputError
from tokencover.pruning.forward_pass import ForwardPass


class RerunPasses:
    """Remembers passes until no backward can run their layers again.

    A forward belongs to the pass under way. In backward, gradient checkpointing runs a layer again
    with the arguments of its own pass: the rotary embedding is the same object, and the hidden
    states share their storage. The first names the pass, unless the model reuses one rotary
    embedding for several passes; then the second does.
    """

    def __init__(self) -> None:
        self._passes: Any = WeakIdKeyDictionary()
        self._unrotated: list[_Entered] = []

    def get_pass(
        self, current: ForwardPass | None, layer: int, states: Tensor, rotation: Any
    ) -> ForwardPass | None:
        """The pass of a layer call; None outside of all passes.

        Parameters
        ----------
        current : ForwardPass or None
            The pass under way in this thread.
        layer : int
            Index of the decoder layer.
        states : Tensor
            ``(b, s, d)``, its input.
        rotation : Any
            Its rotary embedding: tensors, or None.
        """
        known = self._list_passes(rotation)
        if not runs_backward():
            if current is not None:
                _remember(known, current, layer, states)
            return current
        found = known if len(known) == 1 else [e for e in known if e.had(layer, states)]
        if len(found) > 1 or (known and not found):
            raise InputError(
                f"Gradient checkpointing runs decoder layer {layer} again, but {len(known)} passes "
                "share its rotary embedding, and its hidden states were moved. Run one backward "
                "per forward, or do not reuse rotary embeddings."
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

    def __init__(self, run: ForwardPass) -> None:
        self.run, self.storages = run, dict[int, StorageWeakRef]()

    def had(self, layer: int, states: Tensor) -> bool:
        """Whether these hidden states entered the layer in this pass."""
        storage = self.storages.get(layer)
        return storage is not None and storage == StorageWeakRef(states.untyped_storage())

    def is_over(self) -> bool:
        """Whether nothing keeps the hidden states for a backward."""
        return all(storage.expired() for storage in self.storages.values())


def _remember(known: list[_Entered], current: ForwardPass, layer: int, states: Tensor) -> None:
    """Record that these hidden states enter a layer; forget passes that are over."""
    found = next((each for each in known if each.run is current), None)
    if found is None:
        found = _Entered(current)
        known[:] = [*(each for each in known if not each.is_over()), found]
    found.storages[layer] = StorageWeakRef(states.untyped_storage())


def runs_backward() -> bool:
    """Whether autograd is running a backward in this thread, as torch's checkpoint asks it."""
    return torch._C._current_graph_task_id() != -1
