"""A measured run, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tokencover.efficiency.savings import (
    BenchSetting,
    Gains,
    MeasuredCosts,
    Savings,
    TurnRatio,
)
from tokencover.tables import TextTable

SAVINGS_COLUMNS = (
    "method", "K", "kept", "mean", "choose ms", "prefill ms", "faster", "above ideal",
    "first token ms", "faster", "tokens/s", "faster", "cache MB", "smaller", "peak MB", "smaller",
    "GFLOPs", "fewer",
)  # fmt: skip


def tabulate_savings(found: Savings) -> TextTable:
    """The table, and what its columns mean."""
    rows = [_format_row("unpruned", "all", found.unpruned, None)]
    for each in found.rows:
        budget = "-" if each.budget is None else str(each.budget)
        rows.append(_format_row(each.method, budget, each.measured, each.gains))
    notes = (
        "faster, smaller, fewer: unpruned over pruned; of times the median [quartiles] of turns",
        "prefill: the decoder, choosing included; ideal: its blocks natively on equal lengths",
        "first token: from the call of generate, vision tower included",
        "mean: visual tokens that a block works on; peak: what a prefill adds to memory",
        f"GFLOPs: decoder blocks, head and choosing{_note_vision(found.unpruned)}",
    )
    return TextTable(SAVINGS_COLUMNS, rows, above=_format_setting(found.setting), notes=notes)


def export_savings(found: Savings) -> dict[str, Any]:
    """Plain lists and numbers, for JSON."""
    document = asdict(found)
    if found.setting.loading is None:
        del document["setting"]["loading"]
    return document


def _format_setting(setting: BenchSetting) -> str:
    visual = "+".join(map(str, setting.visual_tokens))
    others = "+".join(map(str, setting.other_tokens))
    given = dict(setting.loading or {})
    loading = {**given.pop("options", {}), **given}
    shown = "".join(f"{key.replace('_', ' ')} {value}, " for key, value in loading.items())
    return (
        f"{setting.model}: {visual} visual and {others} other tokens, {setting.device}, "
        f"{setting.dtype}, {shown}{setting.threads} threads, torch {setting.torch}, "
        f"{setting.tokens_out} tokens out, {setting.repeats} turns"
    )


def _format_row(method: str, budget: str, costs: MeasuredCosts, gains: Gains | None) -> list[str]:
    """One line of the table; the unpruned model chooses nothing and gains nothing."""
    faster_prefill, faster_first_token, faster_decode, smaller_cache, smaller_peak, fewer_flops = (
        ["-"] * 6 if gains is None else _format_gains(gains)
    )
    return [
        method,
        budget,
        *_format_tokens(costs),
        "-" if gains is None else _format_ms(costs.selection),
        _format_ms(costs.prefill),
        faster_prefill,
        f"{100 * (costs.above_ideal - 1):+.0f} %",
        _format_ms(costs.first_token),
        faster_first_token,
        "-" if costs.decode_rate is None else f"{costs.decode_rate:.1f}",
        faster_decode,
        f"{costs.facts.cache_bytes / 2**20:.2f}",
        smaller_cache,
        "-" if costs.peak_bytes is None else f"{costs.peak_bytes / 2**20:.1f}",
        smaller_peak,
        f"{(costs.facts.prefill_flops + costs.facts.selection_flops) / 1e9:.3f}",
        fewer_flops,
    ]


def _format_tokens(costs: MeasuredCosts) -> list[str]:
    """Visual tokens left in the end, and the mean over blocks, of a sample on average."""
    samples = costs.facts.tokens_per_layer
    left = sum(each[-1] for each in samples) / len(samples)
    mean = sum(sum(each) / len(each) for each in samples) / len(samples)
    return [f"{left:g}", f"{mean:.1f}"]


def _format_ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _format_gains(gains: Gains) -> list[str]:
    times = gains.prefill, gains.first_token, gains.decode
    sizes = gains.cache, gains.peak, gains.flops
    return [*map(_format_turns, times), *map(_format_ratio, sizes)]


def _format_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _format_turns(ratio: TurnRatio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}x [{ratio.low:.2f}-{ratio.high:.2f}]"


def _note_vision(unpruned: MeasuredCosts) -> str:
    vision = unpruned.facts.vision_flops
    return "" if vision is None else f"; the vision tower and projector add {vision / 1e9:.3f}"
