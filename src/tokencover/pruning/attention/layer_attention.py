"""Queries, keys and attention weights of one decoder layer, without running its attention."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.families import TextModel, get_text_model
from tokencover.pruning.hooks import move_to, run_aside
from tokencover.pruning.passes import Kept

KNOWN_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm", "rotary_emb"}
"""Of an attention whose weights are the softmax of scaled products of rotated projections."""


Letter = Literal["q", "k"]
"""Queries or keys."""


@dataclass(frozen=True, slots=True)
class Past:
    """The ``p`` cached keys that a layer attends to beside those of the pass.

    Keys ``(b, kv_heads, p + m, head_dim)`` of the cache's `layer` are rotated already. `columns`
    ``(b, p)`` bool marks real tokens, None if all are. `keys` are set for a layer that forgets some
    with every pass (sliding windows).
    """

    layer: Any
    length: int
    columns: Tensor | None
    readable: bool
    keys: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Projections:
    """What a layer attends with, for ``m`` tokens of the sequence.

    `keys` are ``(b, m, kv_heads, head_dim)``, not rotated. ``get_queries(samples, slots)`` returns
    ``(b', q, heads, head_dim)``, not rotated, for samples ``(b', 1)`` and slots ``(b', q)`` of the
    ``m``. `rotation` are cosines and sines ``(b or 1, m, rotated dims)``. `kept` says which tokens
    the ``m`` are, None for all; `real` ``(b, m)`` bool which are no padding. `has_run` says that
    the cache has the keys of this pass by now. `mask` ``(b, 1, m, p + m)``, bool or added to
    logits, is None if every token attends to all before it.
    """

    keys: Tensor
    get_queries: Callable[[Tensor, Tensor], Tensor]
    rotation: tuple[Tensor, Tensor]
    kept: Kept | None
    real: Tensor
    past: Past | None
    has_run: bool
    mask: Tensor | None = None

    @property
    def past_length(self) -> int:
        """Number of cached keys before the new ones."""
        return 0 if self.past is None else self.past.length

    def get_visible(self, samples: Tensor, slots: Tensor) -> Tensor:
        """What each row attends to, ``(b', q, p + m)`` bool."""
        if self.mask is not None:
            table = self.mask[:, 0] if self.mask.dtype == torch.bool else self.mask[:, 0] >= 0
            pick = (samples.to(table.device).unsqueeze(-1), slots.to(table.device))
            return table[pick].to(slots.device)
        real = self.real[samples]
        positions = torch.arange(real.shape[1], device=real.device)
        visible = real.unsqueeze(1) & (positions <= slots.unsqueeze(-1))
        if self.past is None:
            return visible
        if self.past.columns is None:
            columns = real.new_ones(len(real), self.past.length)
        else:
            columns = self.past.columns.to(real.device)[samples]
        columns = columns.unsqueeze(1).expand(-1, slots.shape[1], -1)
        return torch.cat([columns, visible], dim=-1)


class LayerAttention:
    """Computes queries, keys and attention weights of one decoder layer.

    Raises an error if the attention may compute its weights in another way: wrong rows would go
    unnoticed. `name` is for messages.
    """

    def __init__(self, layer: nn.Module, name: str) -> None:
        attention: Any = getattr(layer, "self_attn", None)
        _check_known(name, attention)
        self.name, self.module = name, attention
        self.scaling = float(attention.scaling)
        self.layer: Any = layer
        self._rotate_both: Callable[..., tuple[Tensor, Tensor]] = _get_rotation(self.module)

    # ---- queries and keys of modules ---------------------------------------------------------

    def get_last_part(self, letter: Letter) -> nn.Module:
        """The module whose output `finish` makes queries or keys of, not yet rotated.

        Not a norm of heads: some models norm heads before tokens, others tokens before heads.
        """
        norm = self._get_norm(letter)
        bare = norm is None or _get_width(norm) == self.module.head_dim
        found: nn.Module = getattr(self.module, f"{letter}_proj") if bare else norm
        return found

    def finish(self, letter: Letter, recorded: Tensor) -> Tensor:
        """Queries or keys ``(b, m, heads, head_dim)``, from the output of that module."""
        heads, norm = self._split_heads(self._drop_gates(letter, recorded)), self._get_norm(letter)
        if norm is None or _get_width(norm) != self.module.head_dim:
            return heads
        found: Tensor = run_aside(lambda: norm(move_to(norm, heads)))
        return found

    def project(
        self,
        states: Tensor,
        rotation: tuple[Tensor, Tensor],
        kept: Kept | None,
        real: Tensor,
        past: Past | None,
        mask: Tensor | None = None,
    ) -> Projections:
        """What the layer would attend with if it ran on states ``(b, m, d)`` now."""
        with gather_weights(self.layer):
            normed = run_aside(lambda: self._norm(states))
            keys = run_aside(lambda: self._project("k", normed))

        def get_queries(samples: Tensor, slots: Tensor) -> Tensor:
            chosen = normed[samples.to(normed.device), slots.to(normed.device)]
            with gather_weights(self.layer):
                queries: Tensor = run_aside(lambda: self._project("q", chosen))
            return queries

        return Projections(keys, get_queries, rotation, kept, real, past, has_run=False, mask=mask)

    def count_heads(self, letter: Letter, computed: int) -> int:
        """Number of heads of the whole layer; `computed` if its projection has no width.

        A rank of tensor parallelism computes only some of them.
        """
        width = getattr(getattr(self.module, f"{letter}_proj"), "out_features", None)
        if width is None:
            return computed
        size: int = self.module.head_dim * (2 if self._has_gates(letter, width) else 1)
        return int(width) // size

    def _norm(self, states: Tensor) -> Tensor:
        """The input of the attention, for inputs ``(b, m, d)`` of the layer."""
        norm = getattr(self.layer, "input_layernorm", None)
        if norm is None:
            raise InputError(
                f"Cannot compute the attention of {self.name} before it runs: it has no "
                "input_layernorm. Read it at a later pruning layer."
            )
        found: Tensor = norm(move_to(norm, states))
        return found

    def _project(self, letter: Letter, normed: Tensor) -> Tensor:
        """Queries or keys ``(b, m, heads, head_dim)`` of normed states ``(b, m, d)``."""
        projection, norm = getattr(self.module, f"{letter}_proj"), self._get_norm(letter)
        wide = self._drop_gates(letter, projection(move_to(projection, normed)))
        if norm is None:
            return self._split_heads(wide)
        width = _get_width(norm)
        if width == self.module.head_dim:
            found: Tensor = norm(self._split_heads(wide))
            return found
        if width == wide.shape[-1]:
            return self._split_heads(norm(wide))
        raise InputError(
            f"Cannot compute the attention of {self.name} before it runs: its {letter}_norm has "
            f"width {width}, neither that of a head ({self.module.head_dim}) nor of all "
            f"({wide.shape[-1]}). Read it at a later pruning layer."
        )

    def _split_heads(self, projected: Tensor) -> Tensor:
        """From ``(b, m, ...)`` to ``(b, m, heads, head_dim)``."""
        return projected.reshape(*projected.shape[:2], -1, self.module.head_dim)

    def _has_gates(self, letter: Letter, width: int) -> bool:
        """Whether each query is projected with a gate after it for the output of its head."""
        output = getattr(self.module, "o_proj", None)
        return letter == "q" and width == 2 * getattr(output, "in_features", 0)

    def _drop_gates(self, letter: Letter, wide: Tensor) -> Tensor:
        """The queries alone."""
        projection = getattr(self.module, f"{letter}_proj")
        if not self._has_gates(letter, getattr(projection, "out_features", wide.shape[-1])):
            return wide
        return self._split_heads(wide)[:, :, ::2].flatten(2)

    def _get_norm(self, letter: Letter) -> Any:
        norm = getattr(self.module, f"{letter}_norm", None)
        return None if isinstance(norm, nn.Identity) else norm

    # ---- keys and weights of projections ------------------------------------------------------

    def get_keys(self, made: Projections, samples: Tensor, slots: Tensor, rotated: bool) -> Tensor:
        """Keys ``(b', kv_heads, q, head_dim)`` for samples ``(b',)`` and slots ``(b', q)``."""
        pick = (samples.to(made.keys.device).unsqueeze(-1), slots.to(made.keys.device))
        found = made.keys[pick].transpose(1, 2)
        return self._rotate(made, "k", found, pick) if rotated else found

    def compute_weights(
        self, made: Projections, samples: Tensor, slots: Tensor, asked: Tensor
    ) -> Tensor:
        """Attention weights ``(b', heads, q, p + m)`` float32 of slots ``(b', q)``.

        Where `asked` ``(b', q)`` is False the weights mean nothing.
        """
        scores = self._compute_scores(made, samples, slots)
        hidden = ~made.get_visible(samples, slots) & asked.unsqueeze(-1)
        scores.masked_fill_(hidden.unsqueeze(1).to(scores.device), -torch.inf)
        return scores.softmax(-1)

    def _compute_scores(self, made: Projections, samples: Tensor, slots: Tensor) -> Tensor:
        """Scaled products ``(b', heads, q, p + m)`` of the chosen queries with all keys."""
        device, new = made.keys.device, made.keys.shape[1]
        samples, slots = samples.to(device), slots.to(device)
        pick = (samples.unsqueeze(-1), slots)
        chosen = made.get_queries(*pick).to(device).transpose(1, 2)
        with torch.autocast(device.type, enabled=False):
            chosen = self._rotate(made, "q", chosen, pick)
            everywhere = torch.arange(new, device=device).expand(len(samples), -1)
            keys = self.get_keys(made, samples, everywhere, rotated=True)
            if made.past is not None:
                earlier = read_cached_keys(self.name, made.past, new if made.has_run else 0)
                keys = torch.cat([earlier.to(keys)[samples], keys], dim=2)
            batch, heads, count, size = chosen.shape
            # Query heads that share a key head follow each other.
            grouped = chosen.float().reshape(batch, keys.shape[1], -1, size)
            products = grouped @ keys.float().transpose(-1, -2)
        return products.view(batch, heads, count, -1) * self.scaling

    def _rotate(
        self, made: Projections, letter: Letter, heads: Tensor, pick: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Rotate queries or keys ``(b', heads, q, head_dim)``."""
        cosines, sines = (
            table.to(heads.device).expand(len(made.keys), -1, -1)[pick] for table in made.rotation
        )
        if not _rotates(self.module):
            return heads
        none = heads[:, :0]  # of the other kind: the model's own function rotates both at once
        if letter == "q":
            return self._rotate_both(heads, none, cosines, sines)[0]
        return self._rotate_both(none, heads, cosines, sines)[1]


def read_cached_keys(layer: str, past: Past, new: int) -> Tensor:
    """The keys ``(b, kv_heads, p, head_dim)`` of earlier passes, before `new` of this one."""
    if past.keys is not None:
        return past.keys.detach()
    keys = getattr(past.layer, "keys", None)
    if not past.readable or keys is None or keys.dim() != 4 or keys.shape[2] < past.length + new:
        raise InputError(
            f"Cannot compute the attention of {layer}: it attends to {past.length} cached tokens "
            f"whose keys cannot be read from this cache ({type(past.layer).__name__}). Use a "
            "DynamicCache or StaticCache without offloading, or start without a cache."
        )
    found: Tensor = keys.detach()[:, :, : past.length]
    return found


@contextmanager
def gather_weights(layer: Any) -> Iterator[None]:
    """Let a layer that FSDP splits over ranks have its weights outside its own forward."""
    unshard, reshard = (getattr(layer, name, None) for name in ("unshard", "reshard"))
    if unshard is None or reshard is None:
        yield
        return
    from torch.distributed.tensor import DTensor  # slow to import

    is_sharded = any(isinstance(parameter, DTensor) for parameter in layer.parameters())
    unshard()
    try:
        yield
    finally:
        (reshard if is_sharded else unshard)()


def _get_width(norm: nn.Module) -> int | None:
    """Width of a norm, None if it has no weight."""
    weight = getattr(norm, "weight", None)
    return None if weight is None else int(weight.shape[-1])


def _check_known(layer: str, attention: Any) -> None:
    """Raise if the weights of an attention may be more than a softmax of scaled products."""
    name = type(attention).__name__
    parts = {part for part, _ in attention.named_children()} if attention is not None else set()
    reason = None
    if attention is None or not {"q_proj", "k_proj"} <= parts:
        reason = "it has no self_attn with q_proj and k_proj"
    elif unknown := parts - KNOWN_PARTS:
        reason = f"its {name} has parts that may change the weights: {', '.join(sorted(unknown))}"
    elif own := [part for part, _ in attention.named_parameters(recurse=False)]:
        reason = f"its {name} has weights besides its projections: {', '.join(own)}"
    elif getattr(attention, "attn_logit_softcapping", None) is not None:
        reason = f"its {name} caps the products before the softmax"
    elif _scales_by_position(attention):
        reason = f"its {name} scales queries by their position"
    elif _get_text_model(attention).hides_rotations and not _rotates(attention):
        reason = f"its {name} gets no rotary embedding"
    elif not hasattr(attention, "scaling") or _get_rotation(attention) is None:
        reason = f"its {name} has no known scaling or rotation"
    if reason is not None:
        raise InputError(
            f"{layer} cannot be watched: {reason}. Use a method that reads neither keys nor "
            "attention, for example tc.MoB."
        )


def _scales_by_position(attention: Any) -> bool:
    parameters = getattr(getattr(attention, "config", None), "rope_parameters", None) or {}
    return parameters.get("llama_4_scaling_beta") is not None


def _rotates(attention: Any) -> bool:
    """Whether it rotates at all; that of some models does only where it has windows."""
    if not _get_text_model(attention).rotates_windows_only:
        return True
    if hasattr(attention, "is_sliding"):  # EXAONE 4: in all layers if none has windows
        return bool(attention.sliding_window is None or attention.is_sliding)
    return attention.sliding_window is not None


def _get_text_model(attention: Any) -> TextModel:
    return get_text_model(getattr(attention, "config", None))


def _get_rotation(attention: Any) -> Any:
    """The function with which the model itself rotates: halves, pairs, or only some dimensions."""
    return getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
