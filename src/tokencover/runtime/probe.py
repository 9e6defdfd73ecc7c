"""Keys and attention rows of decoder blocks, without attention maps.

Fast attention never forms its weights, and eager attention forms all of them. A method wants a few
rows: how strongly chosen words look at the visual tokens. So the blocks that a method names are
recorded while they run (their queries, keys and rotation tables), and the rows are computed from
that when the method asks. What was recorded is dropped when the pass ends.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.errors import InputError
from tokencover.methods.base import Method
from tokencover.runtime.forward_pass import ForwardPass
from tokencover.runtime.sequence import Kept
from tokencover.runtime.views import VisualTokens, slots_of

KNOWN_PARTS = {"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm", "rotary_emb"}
"""Of an attention whose weights are the softmax of scaled products of rotated projections."""


@dataclass(frozen=True, slots=True)
class Past:
    """The cached keys that a block attended to beside those of the pass.

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
    """

    layer: Any
    length: int
    columns: Tensor | None
    readable: bool


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one block worked with in one pass; ``m`` tokens were left of the sequence.

    Attributes
    ----------
    rotation : tuple of Tensor
        Cosines and sines, ``(b or 1, m, rotated dims)`` each.
    past : Past or None
        None if the pass began with an empty cache.
    projections : dict
        ``queries`` ``(b, m, heads, head_dim)`` and ``keys`` ``(b, m, kv_heads, head_dim)``, both
        normalized if the block does that, and not yet rotated.
    """

    rotation: tuple[Tensor, Tensor]
    past: Past | None
    projections: dict[str, Tensor] = field(default_factory=dict)


class Recorder:
    """Records one decoder block, in passes that bring visual tokens.

    Everything is recorded detached: gradients reach a method that merges through ``view.states``.

    Parameters
    ----------
    number : int
        Of the block.
    block : nn.Module
        The block itself; its attention is ``self_attn``.
    current : callable
        Gives the pass under way, None outside of any.
    past_columns : callable
        Gives, for a block's number and a cache, which cached columns are real tokens.
    """

    def __init__(
        self,
        number: int,
        block: nn.Module,
        current: Callable[[], ForwardPass | None],
        past_columns: Callable[[int, Any], Tensor | None],
    ) -> None:
        self.attention: Any = getattr(block, "self_attn", None)
        _refuse_unknown(number, self.attention)
        self.rotate: Callable[..., tuple[Tensor, Tensor]] = _rotation_of(self.attention)
        self._number, self._current, self._past_columns = number, current, past_columns

    def hooks(self) -> Iterator[tuple[nn.Module, Callable[..., None], bool]]:
        """What to hook on which module, and whether before it runs."""
        yield self.attention, self._begin, True
        for name, letter in (("queries", "q"), ("keys", "k")):
            last = getattr(self.attention, f"{letter}_norm", None)
            if last is None:
                last = getattr(self.attention, f"{letter}_proj")
            yield last, functools.partial(self._projected, name), False

    def _begin(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> None:
        current = self._current()
        if current is None or current.visual is None:
            return
        # Detached tensors are other objects: the pass is kept by the table itself, see Session.
        cosines, sines = (table.detach() for table in kwargs["position_embeddings"])
        past = self._past(kwargs.get("past_key_values"))
        current.recorded[self._number] = Recorded((cosines, sines), past)

    def _projected(
        self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> None:
        current = self._current()
        if current is None or self._number not in current.recorded:
            return
        heads = output.detach().reshape(*output.shape[:2], -1, self.attention.head_dim)
        current.recorded[self._number].projections[name] = heads

    def _past(self, cache: Any) -> Past | None:
        if cache is None:
            return None
        index = self.attention.layer_idx
        layers = getattr(cache, "layers", None)
        if layers is None:  # a cache of some other making
            length = int(cache.get_seq_length(index))
            return Past(None, length, None, readable=False) if length else None
        length = int(layers[index].get_seq_length()) if index < len(layers) else 0
        if length == 0:
            return None
        columns = self._past_columns(self._number, cache)
        columns = None if columns is None else columns[:, :length]
        return Past(layers[index], length, columns, not getattr(cache, "offloading", False))


def recorders_of(
    method: Method,
    blocks: Sequence[nn.Module],
    stages: Sequence[int],
    current: Callable[[], ForwardPass | None],
    past_columns: Callable[[int, Any], Tensor | None],
) -> dict[int, Recorder]:
    """One recorder for each block that the method wants to watch.

    Parameters
    ----------
    method : Method
        Names the blocks.
    blocks : sequence of nn.Module
        All decoder blocks.
    stages : sequence of int
        The blocks before which the method acts.
    current, past_columns : callable
        See `Recorder`.
    """
    watched = tuple(method.watched(len(blocks)))
    if any(not 0 <= number < max(stages, default=0) for number in watched):
        raise InputError(
            f"{type(method).__name__} watches blocks {watched} and acts before blocks "
            f"{tuple(stages)}: a block can be watched only if it runs before the last of these."
        )
    return {number: Recorder(number, blocks[number], current, past_columns) for number in watched}


class Probe:
    """Answers `View.keys` and `View.attention` for one view.

    Parameters
    ----------
    current : ForwardPass
        The pass that the view belongs to.
    tokens : VisualTokens
        The visual tokens of the view.
    recorders : Mapping
        The watched blocks.
    device : torch.device
        Where answers go: where the states of the view are.
    """

    def __init__(
        self,
        current: ForwardPass,
        tokens: VisualTokens,
        recorders: Mapping[int, Recorder],
        device: torch.device,
    ) -> None:
        self._current, self._tokens = current, tokens
        self._recorders, self._device = recorders, device

    def keys(self, block: int) -> Tensor:
        """The keys of the view's visual tokens in a block that has run.

        Parameters
        ----------
        block : int
            Number of a watched block.

        Returns
        -------
        Tensor
            ``(b, kv_heads, n, head_dim)``: after the block's key norm, if it has one, and before
            rotation, so that they tell what a token is and not where. With grouped queries there
            are fewer key heads than query heads, and they are not repeated. Zero where the view's
            mask is False. Carries no gradient.
        """
        keys = self._recorded(block).projections["keys"]
        samples = self._tokens.samples.to(keys.device)
        slots = self._columns(self._current.left_at(block)).to(keys.device)
        found = keys[samples.unsqueeze(-1), slots].transpose(1, 2)
        missing = ~self._tokens.mask[:, None, :, None]
        return found.masked_fill(missing.to(found.device), 0).to(self._device)

    def attention(self, block: int, queries: Tensor) -> Tensor:
        """The weights that chosen tokens gave to the view's visual tokens in a block that has run.

        Parameters
        ----------
        block : int
            Number of a watched block.
        queries : Tensor
            ``(b, q)`` int64, places in the whole sequence, as in ``view.positions``; -1 fills up
            samples that ask for fewer rows. Padding and tokens that were dropped before the block
            have no row.

        Returns
        -------
        Tensor
            ``(b, heads, q, n)`` float32. The softmax runs over all real tokens that the row saw:
            itself and those before it that were left when the block ran, words or visual, and in
            a pass over a kept cache the cached ones too. So rows sum to at most 1 over the visual
            tokens. Zero where the view's mask is False, where `queries` is -1, and for visual
            tokens behind the asking one. Carries no gradient.
        """
        recorded, left = self._recorded(block), self._current.left_at(block)
        queries = self._checked(block, queries, left)
        asked = queries >= 0
        rows = slots_of(queries.clamp(min=0), asked, self._tokens.samples, self._current, left)
        scores = self._scores(block, recorded, rows)
        hidden = ~self._visible(recorded, left, rows) & asked.unsqueeze(-1)
        scores.masked_fill_(hidden.unsqueeze(1).to(scores.device), -torch.inf)
        weights = scores.softmax(-1)
        columns = self._columns(left) + (recorded.past.length if recorded.past else 0)
        columns = columns[:, None, None, :].expand(*weights.shape[:3], -1)
        found = weights.gather(-1, columns.to(weights.device))
        missing = ~(asked[:, None, :, None] & self._tokens.mask[:, None, None, :])
        return found.masked_fill(missing.to(found.device), 0).to(self._device)

    def _recorded(self, block: int) -> Recorded:
        if block not in self._recorders:
            raise InputError(
                f"block {block} is not watched: name the block in the method's `watched` to see "
                "its keys or attention."
            )
        if block not in self._current.recorded:
            raise InputError(
                f"block {block} has not run yet, or its pass is over: ask in `choose` for blocks "
                "before `view.block`."
            )
        return self._current.recorded[block]

    def _columns(self, left: Kept | None) -> Tensor:
        """``(b, n)``, the places of the visual tokens in a sequence of which this was left."""
        tokens = self._tokens
        return slots_of(tokens.index, tokens.mask, tokens.samples, self._current, left)

    def _checked(self, block: int, queries: Tensor, left: Kept | None) -> Tensor:
        """The query places, on the device of the masks."""
        current, samples = self._current, self._tokens.samples
        if queries.dim() != 2 or len(queries) != len(samples) or queries.dtype != torch.int64:
            raise InputError(
                f"queries have shape {tuple(queries.shape)} and type {queries.dtype}: give int64 "
                f"places ({len(samples)}, q), a row for each sample of the view."
            )
        queries = queries.to(samples.device)
        if bool(((queries < -1) | (queries >= current.length)).any()):
            raise InputError(
                f"queries lie between {int(queries.min())} and {int(queries.max())}: they are "
                f"places in a sequence of {current.length} tokens, or -1 for no query."
            )
        alive = current.real if left is None else left.mask(current.length)
        wrong = (queries >= 0) & ~alive[samples].gather(1, queries.clamp(min=0))
        if bool(wrong.any()):
            shown, number = wrong.nonzero()[0].tolist()
            place = int(queries[shown, number])
            real = bool(current.real[samples[shown], place])
            raise InputError(
                f"token {place} of sample {shown} of the view "
                f"{'was dropped before block' if real else 'is padding in block'} {block}, so it "
                "has no attention row there: ask for tokens that were left."
            )
        return queries

    def _scores(self, block: int, recorded: Recorded, rows: Tensor) -> Tensor:
        """Scaled products ``(b, heads, q, p + m)`` of the chosen queries with all keys."""
        recorder = self._recorders[block]
        queries, keys = recorded.projections["queries"], recorded.projections["keys"]
        samples, rows = self._tokens.samples.to(keys.device), rows.to(keys.device)
        cosines, sines = (
            table.to(keys.device).expand(len(keys), -1, -1) for table in recorded.rotation
        )
        pick = (samples.unsqueeze(-1), rows)
        chosen = queries[pick].transpose(1, 2)
        with torch.autocast(keys.device.type, enabled=False):
            # No heads of the other kind: the model's own function rotates both at once.
            chosen = recorder.rotate(chosen, chosen[:, :0], cosines[pick], sines[pick])[0]
            others = keys[samples].transpose(1, 2)
            others = recorder.rotate(others[:, :0], others, cosines[samples], sines[samples])[1]
            if recorded.past is not None:
                earlier = _cached_keys(block, recorded.past, keys.shape[1])
                others = torch.cat([earlier.to(others)[samples], others], dim=2)
            batch, heads, count, size = chosen.shape
            # Query heads that share a key head follow each other.
            grouped = chosen.float().reshape(batch, others.shape[1], -1, size)
            products = grouped @ others.float().transpose(-1, -2)
        return products.view(batch, heads, count, -1) * float(recorder.attention.scaling)

    def _visible(self, recorded: Recorded, left: Kept | None, rows: Tensor) -> Tensor:
        """``(b, q, p + m)`` bool: what each row sees."""
        samples = self._tokens.samples
        real = (self._current.real if left is None else left.valid)[samples]
        places = torch.arange(real.shape[1], device=real.device)
        visible = real.unsqueeze(1) & (places <= rows.unsqueeze(-1))
        past = recorded.past
        if past is None:
            return visible
        if past.columns is None:
            columns = real.new_ones(len(real), past.length)
        else:
            columns = past.columns.to(real.device)[samples]
        columns = columns.unsqueeze(1).expand(-1, rows.shape[1], -1)
        return torch.cat([columns, visible], dim=-1)


def _cached_keys(block: int, past: Past, new: int) -> Tensor:
    keys = getattr(past.layer, "keys", None)
    if not past.readable or keys is None or keys.dim() != 4 or keys.shape[2] < past.length + new:
        raise InputError(
            f"block {block} attended to {past.length} cached tokens whose keys cannot be read from "
            f"this cache ({type(past.layer).__name__}), so its attention is not known: use a "
            "DynamicCache or StaticCache without offloading, or begin without a cache."
        )
    found: Tensor = keys.detach()[:, :, : past.length]
    return found


def _refuse_unknown(number: int, attention: Any) -> None:
    """Refuse attention that computes its weights otherwise: nobody would see wrong rows."""
    name = type(attention).__name__
    parts = {part for part, _ in attention.named_children()} if attention is not None else set()
    reason = None
    if attention is None or not {"q_proj", "k_proj"} <= parts:
        reason = "it has no self_attn with q_proj and k_proj"
    elif unknown := parts - KNOWN_PARTS:
        reason = f"its {name} has parts that may change the weights: {', '.join(sorted(unknown))}"
    elif own := [part for part, _ in attention.named_parameters(recurse=False)]:
        reason = f"its {name} has weights of its own: {', '.join(own)}"
    elif getattr(attention, "attn_logit_softcapping", None) is not None:
        reason = f"its {name} caps the products before the softmax"
    elif _scales_by_position(attention):
        reason = f"its {name} scales queries by their position"
    elif not hasattr(attention, "scaling") or _rotation_of(attention) is None:
        reason = f"its {name} does not tell its scaling or its rotation"
    if reason is not None:
        raise InputError(
            f"decoder block {number} cannot be watched: {reason}. Use a method that needs neither "
            "keys nor attention, tc.MoB say."
        )


def _scales_by_position(attention: Any) -> bool:
    parameters = getattr(getattr(attention, "config", None), "rope_parameters", None) or {}
    return parameters.get("llama_4_scaling_beta") is not None


def _rotation_of(attention: Any) -> Any:
    """The function with which the model itself rotates: halves, pairs, or only some dimensions."""
    return getattr(sys.modules[type(attention).__module__], "apply_rotary_pos_emb", None)
