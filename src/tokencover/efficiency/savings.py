"""Compare methods with the unpruned model and with the ideal, interleaved in one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from tokencover.efficiency.instruments import count_weight_bytes, measure_peak
from tokencover.efficiency.measured import AnswerTimes, IdealDecoder, MeasuredModel, PassFacts
from tokencover.efficiency.workload import Workload
from tokencover.loading import describe_loading
from tokencover.methods import Method, name_method, to_json
from tokencover.tables import TextTable

MEMORY_TURNS: Final = 3
"""Resident memory varies by some megabytes between passes."""


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Medians over turns; seconds are not comparable with those of other runs.

    `ideal_prefill` are the seconds of the same layers on short sequences. `above_ideal` is the
    prefill over its ideal, the median of paired ratios; at best 1, up to noise. `decode_rate` are
    new tokens per second and sample after the first, None if there is only one. `peak_bytes` is the
    memory that a prefill adds at its peak, None where the system does not report it.
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
    """The median ratio over turns, and the quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Gains:
    """Unpruned over pruned: more than 1 is a gain. FLOPs include selection."""

    prefill: TurnRatio
    first_token: TurnRatio
    decode: TurnRatio | None
    cache: float
    flops: float
    peak: float | None


@dataclass(frozen=True, slots=True)
class MethodSavings:
    """A method at a budget: its name with settings that are not defaults, and all of it as JSON."""

    method: str
    settings: str
    budget: int | float | None
    measured: MeasuredCosts
    gains: Gains


@dataclass(frozen=True, slots=True)
class Savings:
    """The result of a run; `setting` has loading options only if there are any."""

    setting: dict[str, Any]
    unpruned: MeasuredCosts
    rows: list[MethodSavings]


def measure_savings(
    workload: Workload,
    methods: Sequence[Method],
    *,
    tokens_out: int = 16,
    repeats: int = 5,
    on_turn: Callable[[], None] | None = None,
) -> Savings:
    """Measure each method against the unpruned model.

    Every turn runs all models once, so other load on the machine affects all of them; ratios are
    taken within a turn. Memory is measured before, in turns whose time does not count. `on_turn` is
    called after every turn that counts, for example to show progress.
    """
    models = [MeasuredModel(workload, method) for method in (None, *methods)]
    facts = [each.inspect_pass() for each in models]
    decoders = [
        IdealDecoder(workload.decoder, each.lengths, batch=len(each.tokens_per_layer))
        for each in facts
    ]
    peaks = _measure_peaks(models, turns=min(repeats, MEMORY_TURNS))
    for model, decoder in zip(models, decoders, strict=True):
        model.time_answer(min(tokens_out, 2))  # warms up
        decoder.time_pass()
    times, ideals = _take_turns(models, decoders, tokens_out, repeats, on_turn)
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
    setting = {
        "model": workload.name,
        "device": str(workload.model.device),
        "dtype": str(workload.model.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "weights_bytes": count_weight_bytes(workload.model),
        "visual_tokens": workload.visual_counts,
        "other_tokens": workload.other_counts,
        "tokens_out": tokens_out,
        "repeats": repeats,
    }
    if loading := describe_loading(workload.model, workload.options):
        setting["loading"] = loading
    return Savings(setting, measured[0], rows)


def _measure_peaks(models: Sequence[MeasuredModel], turns: int) -> list[int | None]:
    """Return what a prefill of each model adds to memory, the median of some turns."""
    found: list[list[int]] = [[] for _ in models]
    for _ in range(turns):
        for model, mine in zip(models, found, strict=True):
            peak = measure_peak(lambda runs=model: runs.time_answer(1))  # type: ignore[misc]
            mine.extend([] if peak is None else [peak])
    return [statistics.median_low(mine) if mine else None for mine in found]


def _take_turns(
    models: Sequence[MeasuredModel],
    decoders: Sequence[IdealDecoder],
    tokens_out: int,
    repeats: int,
    on_turn: Callable[[], None] | None,
) -> tuple[list[list[AnswerTimes]], list[list[float]]]:
    """Return the times of every model and of every ideal, turn by turn."""
    times: list[list[AnswerTimes]] = [[] for _ in models]
    ideals: list[list[float]] = [[] for _ in models]
    for turn in range(repeats):
        order = range(len(models))
        for index in order if turn % 2 == 0 else reversed(order):  # alternates who is first
            times[index].append(models[index].time_answer(tokens_out))
            ideals[index].append(decoders[index].time_pass())
        if on_turn is not None:
            on_turn()
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


SAVINGS_COLUMNS = (
    "method", "K", "kept", "mean", "choose ms", "prefill ms", "faster", "above ideal",
    "first token ms", "faster", "tokens/s", "faster", "cache MB", "smaller", "peak MB", "smaller",
    "GFLOPs", "fewer",
)  # fmt: skip


def tabulate_savings(found: Savings) -> TextTable:
    """Build the table with notes on its columns."""
    rows = [_format_row("unpruned", "all", found.unpruned, None)]
    for each in found.rows:
        budget = "-" if each.budget is None else str(each.budget)
        rows.append(_format_row(each.method, budget, each.measured, each.gains))
    vision = found.unpruned.facts.vision_flops
    added = "" if vision is None else f"; the vision encoder and projector add {vision / 1e9:.3f}"
    notes = (
        "faster, smaller, fewer: unpruned over pruned; of times the median [quartiles] of turns",
        "prefill: the decoder, with selection; ideal: its layers on equally short inputs",
        "first token: from the call of generate, with the vision encoder",
        "mean: visual tokens per decoder layer; peak: memory that a prefill adds",
        f"GFLOPs: decoder layers, head and selection{added}",
    )
    return TextTable(SAVINGS_COLUMNS, rows, above=_format_setting(found.setting), notes=notes)


def export_savings(found: Savings) -> dict[str, Any]:
    """Return plain lists and numbers, for JSON."""
    return asdict(found)


def _format_setting(setting: Mapping[str, Any]) -> str:
    visual = "+".join(map(str, setting["visual_tokens"]))
    others = "+".join(map(str, setting["other_tokens"]))
    given = dict(setting.get("loading", {}))
    loading = {**given.pop("options", {}), **given}
    shown = "".join(f"{key.replace('_', ' ')} {value}, " for key, value in loading.items())
    return (
        f"{setting['model']}: {visual} visual and {others} other tokens, {setting['device']}, "
        f"{setting['dtype']}, {shown}{setting['threads']} threads, torch {setting['torch']}, "
        f"{setting['tokens_out']} tokens out, {setting['repeats']} turns"
    )


def _format_row(method: str, budget: str, costs: MeasuredCosts, gains: Gains | None) -> list[str]:
    """Format one row; the unpruned model has no selection and no gains."""
    prefill = first_token = decode = cache = peak = fewer = "-"
    if gains is not None:
        times = gains.prefill, gains.first_token, gains.decode
        prefill, first_token, decode = map(_format_turns, times)
        cache, peak, fewer = map(_format_ratio, (gains.cache, gains.peak, gains.flops))
    flops = costs.facts.prefill_flops + costs.facts.selection_flops
    samples = costs.facts.tokens_per_layer
    kept = sum(each[-1] for each in samples) / len(samples)
    mean = sum(sum(each) / len(each) for each in samples) / len(samples)
    return [
        method,
        budget,
        f"{kept:g}",
        f"{mean:.1f}",
        "-" if gains is None else f"{1e3 * costs.selection:.1f}",
        f"{1e3 * costs.prefill:.1f}",
        prefill,
        f"{100 * (costs.above_ideal - 1):+.0f} %",
        f"{1e3 * costs.first_token:.1f}",
        first_token,
        "-" if costs.decode_rate is None else f"{costs.decode_rate:.1f}",
        decode,
        f"{costs.facts.cache_bytes / 2**20:.2f}",
        cache,
        "-" if costs.peak_bytes is None else f"{costs.peak_bytes / 2**20:.1f}",
        peak,
        f"{flops / 1e9:.3f}",
        fewer,
    ]


def _format_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _format_turns(ratio: TurnRatio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}x [{ratio.low:.2f}-{ratio.high:.2f}]"
