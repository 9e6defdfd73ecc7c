"""Compares methods with the unpruned model and with the ideal, in turns within one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from tokencover.efficiency.contender import Contender, Facts, Times
from tokencover.efficiency.memory import added_at_peak, model_bytes
from tokencover.efficiency.native import NativeDecoder
from tokencover.efficiency.stopwatch import now
from tokencover.efficiency.subject import Subject
from tokencover.errors import InputError
from tokencover.methods import Method, name_method, to_json

MEMORY_TURNS: Final = 3
"""Resident memory varies by some megabytes from pass to pass, with the allocator's habits."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a run was made.

    Attributes
    ----------
    model, device, dtype, torch : str
        What ran where.
    threads : int
        Of the CPU.
    weights_bytes : int
        Of the model.
    visual_tokens, other_tokens : list of int
        Of each sample.
    tokens_out, repeats : int
        New tokens in each answer, and turns that count.
    """

    model: str
    device: str
    dtype: str
    torch: str
    threads: int
    weights_bytes: int
    visual_tokens: list[int]
    other_tokens: list[int]
    tokens_out: int
    repeats: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over turns; seconds are not comparable with those of other runs.

    Attributes
    ----------
    selection, prefill, first_token : float
        Seconds; see `Times`.
    ideal_prefill : float
        Seconds of the same blocks run natively on sequences of the same lengths.
    above_ideal : float
        The prefill over its ideal, the median of paired ratios; 1 cannot be beaten, but for noise.
    decode_rate : float or None
        New tokens per second and sample behind the first; None if there is only one.
    peak_bytes : int or None
        Memory that a prefill adds at its peak; None where the system does not tell.
    facts : Facts
        What does not depend on the clock.
    """

    selection: float
    prefill: float
    first_token: float
    ideal_prefill: float
    above_ideal: float
    decode_rate: float | None
    peak_bytes: int | None
    facts: Facts


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratios of all turns.

    Attributes
    ----------
    median, low, high : float
        The median, and the two quartiles: half of the turns lie between them.
    """

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gains:
    """Unpruned over pruned, so that more than 1 is a gain.

    Attributes
    ----------
    prefill, first_token : Ratio
        Of times, taken within each turn.
    decode : Ratio or None
        Of the time between tokens.
    cache, flops : float
        Of bytes and operations; operations include choosing.
    peak : float or None
        Of memory.
    """

    prefill: Ratio
    first_token: Ratio
    decode: Ratio | None
    cache: float
    flops: float
    peak: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """A method at a budget.

    Attributes
    ----------
    method, settings : str
        Its name with what is not as by default, and the whole method as JSON.
    budget : int, float or None
        As it was asked for; None if the method has none.
    measured : Measured
        See there.
    gains : Gains
        See there.
    """

    method: str
    settings: str
    budget: int | float | None
    measured: Measured
    gains: Gains


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of a run."""

    setting: Setting
    unpruned: Measured
    rows: list[Row]


def bench(
    subject: Subject, methods: Sequence[Method], *, tokens_out: int = 16, repeats: int = 5
) -> Bench:
    """Measure each method against the unpruned model.

    Every turn runs all contenders once, so that a noisy neighbour hits all of them; ratios are
    taken within a turn. Memory is measured before that, in turns whose time does not count.

    Parameters
    ----------
    subject : Subject
        Model and inputs.
    methods : sequence of Method
        With their budgets.
    tokens_out : int
        New tokens in each answer.
    repeats : int
        How many turns count.
    """
    for name, value in (("--tokens-out", tokens_out), ("--repeats", repeats)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}.")
    contenders = [Contender(subject, method) for method in (None, *methods)]
    facts = [each.look() for each in contenders]
    natives = [_native(subject, each) for each in facts]
    peaks = _peaks(contenders, turns=min(repeats, MEMORY_TURNS))
    for contender, native in zip(contenders, natives, strict=True):
        contender.answer(min(tokens_out, 2))  # warms up
        native()
    times, ideals = _turns(contenders, natives, tokens_out, repeats)
    measured = [
        _measured(*of_one, tokens_out=tokens_out)
        for of_one in zip(times, ideals, peaks, facts, strict=True)
    ]
    rows = [
        Row(
            method=name_method(method),
            settings=to_json(method),
            budget=getattr(method, "budget", None),
            measured=of_method,
            gains=_gains(times[0], mine, measured[0], of_method),
        )
        for method, mine, of_method in zip(methods, times[1:], measured[1:], strict=True)
    ]
    return Bench(_setting(subject, tokens_out, repeats), measured[0], rows)


def _peaks(contenders: Sequence[Contender], turns: int) -> list[int | None]:
    """What a prefill of each adds to memory, the median of some turns."""
    found: list[list[int]] = [[] for _ in contenders]
    for _ in range(turns):
        for contender, mine in zip(contenders, found, strict=True):
            peak = added_at_peak(lambda runs=contender: runs.answer(1))  # type: ignore[misc]
            mine.extend([] if peak is None else [peak])
    return [statistics.median_low(mine) if mine else None for mine in found]


def _native(subject: Subject, facts: Facts) -> Callable[[], float]:
    """The ideal for a contender: runs, and returns seconds."""
    decoder = NativeDecoder(subject.decoder)
    states = decoder.states(facts.lengths, batch=len(facts.tokens_per_layer))

    def seconds() -> float:
        begin = now()
        decoder.run(states)
        return now() - begin

    return seconds


def _turns(
    contenders: Sequence[Contender],
    natives: Sequence[Callable[[], float]],
    tokens_out: int,
    repeats: int,
) -> tuple[list[list[Times]], list[list[float]]]:
    """The times of every contender and of every ideal, turn by turn."""
    times: list[list[Times]] = [[] for _ in contenders]
    ideals: list[list[float]] = [[] for _ in natives]
    for turn in range(repeats):
        order = range(len(contenders))
        for place in order if turn % 2 == 0 else reversed(order):  # nobody is always first
            times[place].append(contenders[place].answer(tokens_out))
            ideals[place].append(natives[place]())
    return times, ideals


def _measured(
    times: Sequence[Times],
    ideals: Sequence[float],
    peak: int | None,
    facts: Facts,
    *,
    tokens_out: int,
) -> Measured:
    above = [each.prefill / ideal for each, ideal in zip(times, ideals, strict=True)]
    return Measured(
        selection=statistics.median(each.selection for each in times),
        prefill=statistics.median(each.prefill for each in times),
        first_token=statistics.median(each.first_token for each in times),
        ideal_prefill=statistics.median(ideals),
        above_ideal=statistics.median(above),
        decode_rate=None
        if tokens_out == 1
        else statistics.median((tokens_out - 1) / each.decode for each in times),
        peak_bytes=peak,
        facts=facts,
    )


def _gains(
    plain: Sequence[Times],
    mine: Sequence[Times],
    unpruned: Measured,
    pruned: Measured,
) -> Gains:
    pairs = list(zip(plain, mine, strict=True))
    before, after = unpruned.facts, pruned.facts
    peaks = unpruned.peak_bytes, pruned.peak_bytes
    return Gains(
        prefill=_ratio([a.prefill / b.prefill for a, b in pairs]),
        first_token=_ratio([a.first_token / b.first_token for a, b in pairs]),
        decode=None
        if pruned.decode_rate is None
        else _ratio([a.decode / b.decode for a, b in pairs]),
        cache=before.cache_bytes / after.cache_bytes,
        flops=before.prefill_flops / (after.prefill_flops + after.selection_flops),
        peak=peaks[0] / peaks[1] if peaks[0] and peaks[1] else None,
    )


def _ratio(of_turns: Sequence[float]) -> Ratio:
    low, middle, high = torch.tensor(of_turns, dtype=torch.float64).quantile(
        torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    )
    return Ratio(float(middle), float(low), float(high))


def _setting(subject: Subject, tokens_out: int, repeats: int) -> Setting:
    return Setting(
        model=subject.name,
        device=str(subject.model.device),
        dtype=str(subject.model.dtype).removeprefix("torch."),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        weights_bytes=model_bytes(subject.model),
        visual_tokens=subject.visual_counts,
        other_tokens=subject.other_counts,
        tokens_out=tokens_out,
        repeats=repeats,
    )
