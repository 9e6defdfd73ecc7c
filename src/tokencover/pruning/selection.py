"""Selects tokens before a decoder layer: builds a method's view, applies its choice, traces it."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tokencover.budget import LayerCost
from tokencover.errors import InputError
from tokencover.families import compute_block_cost
from tokencover.methods import Choice, Details, Method, View, VisionOutputs
from tokencover.pruning.attention.reader import AttentionReader, Upcoming
from tokencover.pruning.hooks import move_to
from tokencover.pruning.passes import Kept, Pass, pack_left
from tokencover.pruning.tensor_parallel import (
    TensorParallelGroup,
    check_same_on_all_ranks,
    choose_on_all_ranks,
)
from tokencover.pruning.trace import Trace, Traces
from tokencover.pruning.vision.encoder_calls import EncoderCalls
from tokencover.pruning.vision.encoder_reader import VisionReader
from tokencover.pruning.vision.merger import VisionMerger

IN_VISION_ENCODER = -1
"""Key in `Pass.kept` of what is left of tokens merged in the vision encoder."""


@dataclass(frozen=True)
class Decoder:
    """What methods may know of the decoder: see `View`."""

    layers: Sequence[nn.Module]
    config: Any
    norm: nn.Module

    def apply_norm(self, states: Tensor) -> Tensor:
        """The final norm of hidden states, which may be on another device than its weights."""
        normed: Tensor = self.norm(move_to(self.norm, states))
        return normed.to(states.device)

    @functools.cached_property
    def cost(self) -> LayerCost:
        """What a decoder layer costs on average; counted when first needed."""
        return compute_block_cost(self.layers, self.config)


@dataclass(frozen=True, slots=True)
class VisualTokens:
    """The visual tokens that may be dropped now, of the samples that have any.

    `samples` ``(b',)`` int64 are rows of the batch, `index` ``(b', n)`` int64 positions in the
    original sequence, padded on the right, where `mask` ``(b', n)`` is False. `total` ``(b',)``
    int64 counts those before anything was dropped.
    """

    samples: Tensor
    index: Tensor
    mask: Tensor
    total: Tensor

    @classmethod
    def at(cls, current: Pass, earlier: Kept | None, newlines: bool) -> VisualTokens:
        """Those that are still there; newline tokens among them if `newlines`."""
        tokens = current.tokens
        newline = tokens.places.newline
        first = tokens.visual if newlines else tokens.visual & ~newline
        visual = first if earlier is None else first & earlier.mask(current.length)
        samples = visual.any(-1).nonzero().squeeze(-1)
        return cls(samples, *pack_left(visual[samples]), first[samples].sum(-1))

    def get_slots(self, index: Tensor, mask: Tensor, kept: Kept | None, length: int) -> Tensor:
        """Positions in the sequence as it is now, for original positions ``(b', q)``."""
        if kept is None:
            return index
        mine = Kept(kept.index[self.samples], kept.valid[self.samples])
        return Kept(index, mask).within(mine, length).index

    def apply(
        self, choice: Choice, current: Pass, states: Tensor, earlier: Kept | None
    ) -> tuple[Tensor, Tensor]:
        """The positions that stay ``(b, s)``, and the states with merged features written in."""
        kept = self._check(choice)
        real = current.tokens.real
        keep = real.clone() if earlier is None else earlier.mask(current.length)
        dropped = (self.mask & ~kept).nonzero()
        keep[self.samples[dropped[:, 0]], self.index[dropped[:, 0], dropped[:, 1]]] = False
        keep |= current.tokens.used
        if choice.hidden_states is not None:
            slots = self.get_slots(self.index, self.mask, earlier, current.length)
            here = kept.nonzero()
            rows, places = self.samples[here[:, 0]], slots[here[:, 0], here[:, 1]]
            here = here.to(choice.hidden_states.device)
            new = choice.hidden_states[here[:, 0], here[:, 1]].to(states)
            states = states.index_put((rows.to(states.device), places.to(states.device)), new)
        return keep, states

    def move(self, choice: Choice, current: Pass) -> None:
        """Record which token's state each position holds now, where a method moved states."""
        if choice.sources is None:
            return
        if current.sources is None:
            positions = torch.arange(current.length, device=current.tokens.real.device)
            current.sources = positions.repeat(len(current.tokens.real), 1)
        before = current.sources.clone()
        for shown, sample in enumerate(self.samples.tolist()):
            source = choice.sources[shown].to(self.index.device)
            slots = self.index[shown, choice.kept[shown].to(source.device).sort().values]
            held = before[sample, self.index[shown, source.clamp(min=0)]]
            current.sources[sample, slots] = torch.where(source < 0, -1, held)

    def _check(self, choice: Choice) -> Tensor:
        """The tokens that stay, ``(b', n)`` bool."""
        if len(choice.kept) != len(self.samples):
            raise InputError(
                f"the method chose for {len(choice.kept)} samples of {len(self.samples)}. Return "
                "one tensor of indices per sample of the view."
            )
        sizes = self.mask.sum(-1).tolist()
        for sample, (index, size) in enumerate(zip(choice.kept, sizes, strict=True)):
            if len(index) and not 0 <= int(index.min()) <= int(index.max()) < size:
                raise InputError(
                    f"the method kept tokens {int(index.min())} to {int(index.max())} of sample "
                    f"{sample}, which has {size}. Return indices from 0 to {size - 1}."
                )
        return choice.mask_like(self.mask)


class Selector:
    """Lets a method select tokens before its pruning layers, `stages`, and traces what it kept."""

    def __init__(
        self,
        method: Method,
        decoder: Decoder,
        stages: tuple[int, ...],
        read_attention: Callable[[Pass, VisualTokens, Upcoming], AttentionReader],
        calls: EncoderCalls,
        merger: VisionMerger | None,
        reader: VisionReader | None,
        ranks: TensorParallelGroup | None,
    ) -> None:
        self._method, self._decoder, self._stages = method, decoder, stages
        self._read_attention, self._calls = read_attention, calls
        self._merger, self._reader, self._ranks = merger, reader, ranks
        self.trace = Traces()

    def prune(
        self, current: Pass, layer_idx: int, states: Tensor, kwargs: dict[str, Any]
    ) -> Tensor:
        """The hidden states that enter a layer, after dropping tokens before it."""
        if layer_idx == 0 and self._merger is not None:
            states = self._drop_merged(self._merger, current, states)
        if layer_idx not in self._stages:
            return states
        earlier = current.find_kept(layer_idx - 1)
        # With gradient checkpointing this runs again in backward: the choice stands, but merged
        # states must be computed again, or they would have no gradient.
        if layer_idx not in current.kept or self._method.merges:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self._method.merges):
                chosen = self._select(current, Upcoming(layer_idx, states, earlier, kwargs))
            states = chosen if self._method.merges else states
        kept = current.kept[layer_idx]
        if kept is None:
            return states
        within = kept if earlier is None else kept.within(earlier, current.length)
        return within.take(states)

    def _drop_merged(self, merger: VisionMerger, current: Pass, states: Tensor) -> Tensor:
        """Keep one visual token per group that was merged in the vision encoder."""
        if IN_VISION_ENCODER not in current.kept:
            tokens = VisualTokens.at(current, None, newlines=True)
            first = merger.mark_first_of_groups(self._calls)
            keep = current.tokens.real & (first | current.tokens.used)
            if self._ranks is not None:
                check_same_on_all_ranks(self._ranks, self._method, keep)
            current.kept[IN_VISION_ENCODER] = self._keep_where(keep, current, None)
            current.seconds += merger.seconds
            self._write_trace(current, tokens, Choice([]), keep)
        kept = current.kept[IN_VISION_ENCODER]
        return states if kept is None else kept.take(states)

    def _select(self, current: Pass, upcoming: Upcoming) -> Tensor:
        """Record what stays before a layer; return the states with merged features."""
        layer_idx, states, earlier = upcoming.layer_idx, upcoming.states, upcoming.kept
        newlines = self._method.shows_newlines(layer_idx, len(self._decoder.layers))
        tokens = VisualTokens.at(current, earlier, newlines)
        if len(tokens.samples) == 0:
            current.kept[layer_idx] = None
            return states
        generation = current.tokens.generation
        if generation is not None and layer_idx in generation.choices:
            keep, states = tokens.apply(generation.choices[layer_idx], current, states, earlier)
            current.kept[layer_idx] = self._keep_where(keep, current, earlier)
            return states
        attention = self._read_attention(current, tokens, upcoming)
        encoded = self._read_encoder(current, tokens, states)
        view = build_view(current, tokens, upcoming, self._decoder, attention, encoded)
        begin = time.perf_counter()
        try:
            if self._ranks is None:
                choice = self._method.choose(view)
            else:
                choice = choose_on_all_ranks(self._ranks, self._method, view)
        finally:
            attention.close()
        current.seconds += time.perf_counter() - begin
        if generation is not None:
            generation.choices[layer_idx] = choice
        keep, states = tokens.apply(choice, current, states, earlier)
        if layer_idx not in current.kept:
            tokens.move(choice, current)
        current.kept[layer_idx] = self._keep_where(keep, current, earlier)
        self._write_trace(current, tokens, choice, keep)
        return states

    def _keep_where(self, keep: Tensor, current: Pass, earlier: Kept | None) -> Kept | None:
        """The positions that stay; None if nothing was dropped, now or earlier."""
        if earlier is None and bool((keep | ~current.tokens.real).all()):
            return None
        return Kept.where(keep)

    def _write_trace(
        self, current: Pass, tokens: VisualTokens, choice: Choice, keep: Tensor
    ) -> None:
        stages = self._stages if self._merger is None else (IN_VISION_ENCODER, *self._stages)
        self.trace = Traces(build_traces(current, tokens, choice, keep, stages, self._decoder))

    def _read_encoder(
        self, current: Pass, tokens: VisualTokens, states: Tensor
    ) -> VisionOutputs | None:
        if self._reader is None:
            return None
        if current.encodings is None:
            current.encodings = self._reader.take(self._calls)
        if current.entered is not None:
            current.encodings.remember_states(current.entered)
        return current.encodings.build_outputs(tokens, states)


def build_view(
    current: Pass,
    tokens: VisualTokens,
    upcoming: Upcoming,
    decoder: Decoder,
    attention: AttentionReader,
    encoded: VisionOutputs | None,
) -> View:
    """Everything a method may read before a layer, on the device of its states.

    The layers of a model may be on several devices; masks are on that of the inputs.
    """
    states, earlier, samples = upcoming.states, upcoming.kept, tokens.samples
    device, prompt = states.device, current.tokens
    real, visual = prompt.real[samples], prompt.visual[samples]
    prompt_index, prompt_mask = pack_left(prompt.prompt[samples])
    text_index, text_mask = pack_left(real & ~visual & (visual.cumsum(-1) > 0))

    def gather(index: Tensor, mask: Tensor) -> Tensor:
        slots = tokens.get_slots(index, mask, earlier, current.length).to(device)
        return states[samples.to(device).unsqueeze(-1), slots]

    def place(plane: Tensor) -> Tensor:
        return plane[samples].gather(1, tokens.index).to(device)

    places = prompt.places
    positions = torch.arange(1, current.length + 1, device=samples.device)
    return View(
        layer_idx=upcoming.layer_idx,
        num_layers=len(decoder.layers),
        hidden_states=gather(tokens.index, tokens.mask),
        mask=tokens.mask.to(device),
        prompt=gather(prompt_index, prompt_mask),
        prompt_mask=prompt_mask.to(device),
        prompt_positions=prompt_index.masked_fill(~prompt_mask, -1).to(device),
        text=gather(text_index, text_mask),
        text_mask=text_mask.to(device),
        text_positions=text_index.masked_fill(~text_mask, -1).to(device),
        last=(real * positions).argmax(-1).to(device),
        positions=tokens.index.to(device),
        total=tokens.total.to(device),
        others=(real.sum(-1) - tokens.total).to(device),
        medium=place(places.medium),
        frame=place(places.frame),
        row=place(places.row),
        column=place(places.column),
        kind=place(places.kind),
        video=place(places.video),
        keys=attention.keys,
        attention=attention.attention,
        ahead=attention.ahead,
        norm=decoder.apply_norm,
        cost=decoder.cost,
        notes=current.notes,
        vision=encoded,
    )


def build_traces(
    current: Pass,
    tokens: VisualTokens,
    choice: Choice,
    keep: Tensor,
    stages: tuple[int, ...],
    decoder: Decoder,
) -> list[Trace]:
    """One trace per sample of the view."""
    traces = []
    for shown, sample in enumerate(tokens.samples.tolist()):
        visual = current.tokens.visual[sample].nonzero().squeeze(-1)
        positions = visual[keep[sample, visual]]
        if current.sources is not None:
            positions = current.sources[sample, positions]
        counts = _count_per_layer(current, keep, sample, stages, len(decoder.layers))
        others = int(current.tokens.real[sample].sum()) - len(visual)
        details = Details(choice.details[shown] if choice.details else {})
        renumbered = {}
        for name in ("prompt_centers", "visual_centers", "wiped"):
            if name in details:  # from the method's numbering to that of all visual tokens
                centers = tokens.index[shown][details[name].to(tokens.index.device)]
                renumbered[name] = torch.searchsorted(visual, centers)
        planes = current.tokens.places
        located = (planes.medium, planes.frame, planes.row, planes.column)
        places = torch.stack([plane[sample, visual] for plane in located], -1)
        kept = torch.searchsorted(visual, positions.clamp(min=0)).masked_fill(positions < 0, -1)
        at = [plane[kept.clamp(min=0)].masked_fill(kept < 0, -1) for plane in places.unbind(-1)]
        traces.append(
            Trace(
                sample=sample,
                visual_tokens=len(visual),
                kept=kept,
                medium=at[0],
                frame=at[1],
                row=at[2],
                column=at[3],
                grids=_compute_grids(places),
                tokens_per_layer=counts,
                flops=round(sum(decoder.cost.of(others + count) for count in counts)),
                flops_unpruned=round(len(counts) * decoder.cost.of(others + len(visual))),
                seconds=current.seconds,
                details=Details(details, **renumbered),
                grid_locations=places,
            )
        )
    return traces


def _compute_grids(places: Tensor) -> dict[tuple[int, int], tuple[int, int]]:
    """(rows, columns) of every view or frame of a sample's media, by (medium, frame)."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for medium, frame, row, column in places.tolist():
        if row >= 0:
            rows, columns = found.get((medium, frame), (0, 0))
            found[medium, frame] = max(rows, row + 1), max(columns, column + 1)
    return found


def _count_per_layer(
    current: Pass, keep: Tensor, sample: int, stages: tuple[int, ...], depth: int
) -> list[int]:
    """Visual tokens that each decoder layer processes."""
    visual = current.tokens.visual[sample]
    reached = len(current.kept)
    counts = []
    for layer_idx in range(depth):
        stage = sum(each <= layer_idx for each in stages)
        if stage > reached - 1:
            counts.append(int((visual & keep[sample]).sum()))
        else:
            kept = current.find_kept(layer_idx)
            here = visual if kept is None else visual & kept.mask(current.length)[sample]
            counts.append(int(here.sum()))
    return counts
