"""Compares methods with the unpruned model and with the ideal, in turns within one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from tokencover.efficiency.ideal_prefill import IdealDecoder
from tokencover.efficiency.instruments import count_weight_bytes, measure_peak, read_clock
from tokencover.efficiency.measured_model import AnswerTimes, MeasuredModel, PassFacts
from tokencover.efficiency.workload import Workload
from tokencover.errors import InputError
from tokencover.loading import describe_loading
from tokencover.methods import Method, name_method, to_json

MEMORY_TURNS: Final = 3
"""Resident memory varies by some megabytes from pass to pass, with the allocator's habits."""


@dataclass(frozen=True, slots=True)
class BenchSetting:
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
    loading : dict or None
        Quantization of the weights, and further options that the model was loaded with; None if
        there are none.
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
    loading: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Medians over turns; seconds are not comparable with those of other runs.

    Attributes
    ----------
    selection, prefill, first_token : float
        Seconds; see `AnswerTimes`.
    ideal_prefill : float
        Seconds of the same blocks run natively on sequences of the same lengths.
    above_ideal : float
        The prefill over its ideal, the median of paired ratios; 1 cannot be beaten, but for noise.
    decode_rate : float or None
        New tokens per second and sample after the first; None if there is only one.
    peak_bytes : int or None
        Memory that a prefill adds at its peak; None where the system does not tell.
    facts : PassFacts
        What does not depend on the clock.
    """

    selection: float
    prefill: float
    first_token: float
    ideal_prefill: float
    above_ideal: float
    decode_rate: float | None
    peak_bytes: int | None
    facts: PassFacts


@dataclass(frozen=True, slots=True)
class TurnRatio:
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
    prefill, first_token : TurnRatio
        Of times, taken within each turn.
    decode : TurnRatio or None
        Of the time between tokens.
    cache, flops : float
        Of bytes and operations; operations include choosing.
    peak : float or None
        Of memory.
    """

    prefill: TurnRatio
    first_token: TurnRatio
    decode: TurnRatio | None
    cache: float
    flops: float
    peak: float | None


@dataclass(frozen=True, slots=True)
class MethodSavings:
    """A method at a budget.

    Attributes
    ----------
    method, settings : str
        Its name with what is not as by default, and the whole method as JSON.
    budget : int, float or None
        As it was asked for; None if the method has none.
    measured : MeasuredCosts
        See there.
    gains : Gains
        See there.
    """

    method: str
    settings: str
    budget: int | float | None
    measured: MeasuredCosts
    gains: Gains


@dataclass(frozen=True, slots=True)
class Savings:
    """The result of a run."""

    setting: BenchSetting
    unpruned: MeasuredCosts
    rows: list[MethodSavings]


def measure_savings(
    workload: Workload,
    methods: Sequence[Method],
    *,
    tokens_out: int = 16,
    repeats: int = 5,
    tell_turn: Callable[[], None] | None = None,
) -> Savings:
    """Measure each method against the unpruned model.

    Every turn runs all models once, so that a noisy neighbour hits all of them; ratios are
    taken within a turn. Memory is measured before that, in turns whose time does not count.

    Parameters
    ----------
    workload : Workload
        Model and inputs.
    methods : sequence of Method
        With their budgets.
    tokens_out : int
        New tokens in each answer.
    repeats : int
        How many turns count.
    tell_turn : callable, optional
        Called after every turn that counts, for example to show how far the run is.
    """
    for name, value in (("--tokens-out", tokens_out), ("--repeats", repeats)):
        if value < 1:
            raise InputError(f"{name} must be at least 1, got {value}.")
    models = [MeasuredModel(workload, method) for method in (None, *methods)]
    facts = [each.inspect_pass() for each in models]
    ideal_runs = [_make_ideal(workload, each) for each in facts]
    peaks = _measure_peaks(models, turns=min(repeats, MEMORY_TURNS))
    for model, ideal_run in zip(models, ideal_runs, strict=True):
        model.time_answer(min(tokens_out, 2))  # warms up
        ideal_run()
    times, ideals = _take_turns(models, ideal_runs, tokens_out, repeats, tell_turn)
    measured = [
        _compute_medians(*of_one, tokens_out=tokens_out)
        for of_one in zip(times, ideals, peaks, facts, strict=True)
    ]
    rows = [
        MethodSavings(
            method=name_method(method),
            settings=to_json(method),
            budget=getattr(method, "budget", None),
            measured=of_method,
            gains=_compute_gains(times[0], mine, measured[0], of_method),
        )
        for method, mine, of_method in zip(methods, times[1:], measured[1:], strict=True)
    ]
    return Savings(_describe_setting(workload, tokens_out, repeats), measured[0], rows)


def _measure_peaks(models: Sequence[MeasuredModel], turns: int) -> list[int | None]:
    """What a prefill of each adds to memory, the median of some turns."""
    found: list[list[int]] = [[] for _ in models]
    for _ in range(turns):
        for model, mine in zip(models, found, strict=True):
            peak = measure_peak(lambda runs=model: runs.time_answer(1))  # type: ignore[misc]
            mine.extend([] if peak is None else [peak])
    return [statistics.median_low(mine) if mine else None for mine in found]


def _make_ideal(workload: Workload, facts: PassFacts) -> Callable[[], float]:
    """The ideal for a model: runs, and returns seconds."""
    decoder = IdealDecoder(workload.decoder)
    states = decoder.make_states(facts.lengths, batch=len(facts.tokens_per_layer))

    def time_pass() -> float:
        begin = read_clock()
        decoder.run(states)
        return read_clock() - begin

    return time_pass


def _take_turns(
    models: Sequence[MeasuredModel],
    ideal_runs: Sequence[Callable[[], float]],
    tokens_out: int,
    repeats: int,
    tell_turn: Callable[[], None] | None,
) -> tuple[list[list[AnswerTimes]], list[list[float]]]:
    """The times of every model and of every ideal, turn by turn."""
    times: list[list[AnswerTimes]] = [[] for _ in models]
    ideals: list[list[float]] = [[] for _ in ideal_runs]
    for turn in range(repeats):
        order = range(len(models))
        for place in order if turn % 2 == 0 else reversed(order):  # none is always first
            times[place].append(models[place].time_answer(tokens_out))
            ideals[place].append(ideal_runs[place]())
        if tell_turn is not None:
            tell_turn()
    return times, ideals


def _compute_medians(
    times: Sequence[AnswerTimes],
    ideals: Sequence[float],
    peak: int | None,
    facts: PassFacts,
    *,
    tokens_out: int,
) -> MeasuredCosts:
    above = [each.prefill / ideal for each, ideal in zip(times, ideals, strict=True)]
    return MeasuredCosts(
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


def _compute_gains(
    plain: Sequence[AnswerTimes],
    mine: Sequence[AnswerTimes],
    unpruned: MeasuredCosts,
    pruned: MeasuredCosts,
) -> Gains:
    pairs = list(zip(plain, mine, strict=True))
    before, after = unpruned.facts, pruned.facts
    peaks = unpruned.peak_bytes, pruned.peak_bytes
    return Gains(
        prefill=_compute_ratio([a.prefill / b.prefill for a, b in pairs]),
        first_token=_compute_ratio([a.first_token / b.first_token for a, b in pairs]),
        decode=None
        if pruned.decode_rate is None
        else _compute_ratio([a.decode / b.decode for a, b in pairs]),
        cache=before.cache_bytes / after.cache_bytes,
        flops=before.prefill_flops / (after.prefill_flops + after.selection_flops),
        peak=peaks[0] / peaks[1] if peaks[0] and peaks[1] else None,
    )


def _compute_ratio(of_turns: Sequence[float]) -> TurnRatio:
    low, middle, high = torch.tensor(of_turns, dtype=torch.float64).quantile(
        torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    )
    return TurnRatio(float(middle), float(low), float(high))


def _describe_setting(workload: Workload, tokens_out: int, repeats: int) -> BenchSetting:
    return BenchSetting(
        model=workload.name,
        device=str(workload.model.device),
        dtype=str(workload.model.dtype).removeprefix("torch."),
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        weights_bytes=count_weight_bytes(workload.model),
        visual_tokens=workload.visual_counts,
        other_tokens=workload.other_counts,
        tokens_out=tokens_out,
        repeats=repeats,
        loading=describe_loading(workload.model, workload.options) or None,
    )
