"""Between sequences and methods: gather what a method sees, apply what it chose, trace it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tokencover.budget import LayerCost, block_cost
from tokencover.errors import InputError
from tokencover.families import Places
from tokencover.methods import Choice, Details, View, VisionOutputs
from tokencover.pruning.forward_pass import Kept, VisualPass, pack_left
from tokencover.pruning.hooks import move_to
from tokencover.pruning.trace import Trace

if TYPE_CHECKING:
    from tokencover.pruning.attention import Probe, UpcomingBlock


@dataclass(frozen=True)
class Decoder:
    """What methods may know of the decoder: see `View`."""

    layers: Sequence[nn.Module]
    config: Any
    norm: nn.Module

    @property
    def depth(self) -> int:
        """Number of decoder layers."""
        return len(self.layers)

    def apply_norm(self, states: Tensor) -> Tensor:
        """The final norm of hidden states, which may be on another device than its weights."""
        normed: Tensor = self.norm(move_to(self.norm, states))
        return normed.to(states.device)

    @functools.cached_property
    def cost(self) -> LayerCost:
        """What a decoder layer costs on average; counted when first needed."""
        return block_cost(self.layers, self.config)


@dataclass(frozen=True, slots=True)
class VisualTokens:
    """The visual tokens that may be dropped now, of the samples that have any.

    Attributes
    ----------
    samples : Tensor
        ``(b',)`` int64, rows of the batch.
    index : Tensor
        ``(b', n)`` int64, places in the original sequence, filled up from the left.
    mask : Tensor
        ``(b', n)`` bool, which of them exist.
    total : Tensor
        ``(b',)`` int64, how many there were before anything was dropped.
    """

    samples: Tensor
    index: Tensor
    mask: Tensor
    total: Tensor

    @classmethod
    def at(cls, current: VisualPass, earlier: Kept | None, newlines: bool) -> VisualTokens:
        """Those that are still there; newline tokens among them if `newlines`."""
        newline = current.places.newline
        first = current.visual if newlines else current.visual & ~newline
        visual = first if earlier is None else first & earlier.mask(current.length)
        samples = visual.any(-1).nonzero().squeeze(-1)
        return cls(samples, *pack_left(visual[samples]), first[samples].sum(-1))

    def apply(
        self, choice: Choice, current: VisualPass, states: Tensor, earlier: Kept | None
    ) -> tuple[Tensor, Tensor]:
        """The positions that stay ``(b, s)``, and the states with merged features written in."""
        kept = self._check(choice)
        keep = current.real.clone() if earlier is None else earlier.mask(current.length)
        dropped = (self.mask & ~kept).nonzero()
        keep[self.samples[dropped[:, 0]], self.index[dropped[:, 0], dropped[:, 1]]] = False
        keep |= current.used
        if choice.hidden_states is not None:
            slots = find_slots(self.index, self.mask, self.samples, current, earlier)
            here = kept.nonzero()
            rows, places = self.samples[here[:, 0]], slots[here[:, 0], here[:, 1]]
            here = here.to(choice.hidden_states.device)
            new = choice.hidden_states[here[:, 0], here[:, 1]].to(states)
            states = states.index_put((rows.to(states.device), places.to(states.device)), new)
        return keep, states

    def move(self, choice: Choice, current: VisualPass) -> None:
        """Note which token's state each slot holds now, where a method moved states."""
        if choice.sources is None:
            return
        if current.sources is None:
            places = torch.arange(current.length, device=current.real.device)
            current.sources = places.repeat(len(current.real), 1)
        before = current.sources.clone()
        for shown, sample in enumerate(self.samples.tolist()):
            source = choice.sources[shown].to(self.index.device)
            slots = self.index[shown, choice.kept[shown].to(source.device).sort().values]
            held = before[sample, self.index[shown, source.clamp(min=0)]]
            current.sources[sample, slots] = torch.where(source < 0, -1, held)

    def _check(self, choice: Choice) -> Tensor:
        if len(choice.kept) != len(self.samples):
            raise InputError(
                f"the method chose for {len(choice.kept)} samples, {len(self.samples)} were shown."
            )
        sizes = self.mask.sum(-1).tolist()
        for sample, (index, size) in enumerate(zip(choice.kept, sizes, strict=True)):
            if len(index) and not 0 <= int(index.min()) <= int(index.max()) < size:
                raise InputError(
                    f"the method kept tokens {int(index.min())} to {int(index.max())} of sample "
                    f"{sample}, which has {size}."
                )
        return choice.mask_like(self.mask)


class Answers:
    """What `View.keys`, `View.attention` and `View.ahead` say.

    Most methods never ask, so the probe that answers is made with the first question.

    Parameters
    ----------
    make_probe : callable
        Makes it, given the block about to run or None.
    find_upcoming : callable
        Gives that block.
    """

    def __init__(
        self,
        make_probe: Callable[[UpcomingBlock | None], Probe],
        find_upcoming: Callable[[], UpcomingBlock],
    ) -> None:
        self._make_probe = make_probe
        self._find_upcoming: Callable[[], UpcomingBlock] | None = find_upcoming
        self._made: Probe | None = None

    def close(self) -> None:
        """Let go of the sequence, which a view that is kept would hold forever."""
        self._find_upcoming = None
        if self._made is not None:
            self._made.close()

    def keys(self, block: int, places: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        """See `Probe.keys`."""
        return self._probe.keys(block, places, rotated=rotated)

    def attention(self, block: int, queries: Tensor) -> Tensor:
        """See `Probe.attention`."""
        return self._probe.attention(block, queries)

    def ahead(self, blocks: Sequence[nn.Module | int], queries: Tensor) -> Tensor:
        """See `Probe.ahead`."""
        return self._probe.ahead(blocks, queries)

    @property
    def _probe(self) -> Probe:
        if self._made is None:
            find = self._find_upcoming
            self._made = self._make_probe(None if find is None else find())
        return self._made


def make_view(
    current: VisualPass,
    tokens: VisualTokens,
    states: Tensor,
    earlier: Kept | None,
    block: int,
    decoder: Decoder,
    answers: Answers,
    encoded: VisionOutputs | None,
) -> View:
    """Everything a method may see before a block, on the device of its states.

    The layers of a model may be on several devices, and what describes the prompt is on that of the
    inputs.
    """
    samples, device = tokens.samples, states.device
    real, visual = current.real[samples], current.visual[samples]
    prompt_index, prompt_mask = pack_left(current.prompt[samples])
    text_index, text_mask = pack_left(real & ~visual & (visual.cumsum(-1) > 0))

    def gather(index: Tensor, mask: Tensor) -> Tensor:
        slots = find_slots(index, mask, samples, current, earlier).to(device)
        return states[samples.to(device).unsqueeze(-1), slots]

    def place(plane: Tensor) -> Tensor:
        return plane[samples].gather(1, tokens.index).to(device)

    places = current.places
    positions = torch.arange(1, current.length + 1, device=samples.device)
    return View(
        layer_idx=block,
        num_layers=decoder.depth,
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
        keys=answers.keys,
        attention=answers.attention,
        ahead=answers.ahead,
        norm=decoder.apply_norm,
        cost=decoder.cost,
        notes=current.notes,
        vision=encoded,
    )


def find_slots(
    index: Tensor, mask: Tensor, samples: Tensor, current: VisualPass, earlier: Kept | None
) -> Tensor:
    """Places in the sequence as it is now, for places in the original one."""
    if earlier is None:
        return index
    mine = Kept(earlier.index[samples], earlier.valid[samples])
    return Kept(index, mask).within(mine, current.length).index


def make_traces(
    current: VisualPass,
    tokens: VisualTokens,
    choice: Choice,
    keep: Tensor,
    stages: tuple[int, ...],
    decoder: Decoder,
) -> list[Trace]:
    """One trace for each sample that was shown."""
    traces = []
    for shown, sample in enumerate(tokens.samples.tolist()):
        visual = current.visual[sample].nonzero().squeeze(-1)
        places = visual[keep[sample, visual]]
        if current.sources is not None:
            places = current.sources[sample, places]
        counts = _count_per_layer(current, keep, sample, stages, decoder.depth)
        others = int(current.real[sample].sum()) - len(visual)
        details = Details(choice.details[shown] if choice.details else {})
        renumbered = {}
        for name in ("prompt_centers", "visual_centers", "wiped"):
            if name in details:  # from the method's numbering to that of all visual tokens
                positions = tokens.index[shown][details[name].to(tokens.index.device)]
                renumbered[name] = torch.searchsorted(visual, positions)
        planes = current.places
        traces.append(
            Trace(
                sample=sample,
                visual_tokens=len(visual),
                kept=torch.searchsorted(visual, places.clamp(min=0)).masked_fill(places < 0, -1),
                medium=_take_at(planes.medium[sample], places),
                frame=_take_at(planes.frame[sample], places),
                row=_take_at(planes.row[sample], places),
                column=_take_at(planes.column[sample], places),
                grids=_find_grids(planes, sample, visual),
                tokens_per_layer=counts,
                flops=round(sum(decoder.cost.of(others + count) for count in counts)),
                flops_unpruned=round(decoder.depth * decoder.cost.of(others + len(visual))),
                seconds=current.seconds,
                details=Details(details, **renumbered),
                grid_locations=_stack_places(planes, sample, visual),
            )
        )
    return traces


def _stack_places(planes: Places, sample: int, visual: Tensor) -> Tensor:
    """(medium, frame, row, column) of all visual tokens of a sample."""
    shown = (planes.medium, planes.frame, planes.row, planes.column)
    return torch.stack([plane[sample, visual] for plane in shown], -1)


def _take_at(plane: Tensor, places: Tensor) -> Tensor:
    """Values of a plane at some places; -1 for no place."""
    return plane[places.clamp(min=0)].masked_fill(places < 0, -1)


def _find_grids(
    places: Places, sample: int, visual: Tensor
) -> dict[tuple[int, int], tuple[int, int]]:
    """(rows, columns) of every view or frame of a sample's pictures, by (medium, frame)."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    planes = [
        plane[sample, visual].tolist()
        for plane in (places.medium, places.frame, places.row, places.column)
    ]
    for medium, frame, row, column in zip(*planes, strict=True):
        if row >= 0:
            rows, columns = found.get((medium, frame), (0, 0))
            found[medium, frame] = max(rows, row + 1), max(columns, column + 1)
    return found


def _count_per_layer(
    current: VisualPass, keep: Tensor, sample: int, stages: tuple[int, ...], depth: int
) -> list[int]:
    visual = current.visual[sample]
    reached = len(current.kept)
    counts = []
    for block in range(depth):
        stage = sum(each <= block for each in stages)
        if stage > reached - 1:
            counts.append(int((visual & keep[sample]).sum()))
        else:
            left = current.find_left(block)
            here = visual if left is None else visual & left.mask(current.length)[sample]
            counts.append(int(here.sum()))
    return counts
