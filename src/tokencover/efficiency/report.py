"""A measured run, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tokencover.efficiency.bench import Bench, Measured, Ratio, Row, Setting
from tokencover.tables import aligned

HEADER = (
    "method", "K", "kept", "mean", "choose ms", "prefill ms", "faster", "above ideal",
    "first token ms", "faster", "tokens/s", "faster", "cache MB", "smaller", "peak MB", "smaller",
    "GFLOPs", "fewer",
)  # fmt: skip


def as_text(found: Bench) -> str:
    """The table, and what its columns mean."""
    rows = [_unpruned(found.unpruned), *map(_row, found.rows)]
    notes = (
        "faster, smaller, fewer: unpruned over pruned; of times the median [quartiles] of turns",
        "prefill: the decoder, choosing included; ideal: its blocks natively on equal lengths",
        "first token: from the call of generate, vision tower included",
        "mean: visual tokens that a block works on; peak: what a prefill adds to memory",
        f"GFLOPs: decoder blocks, head and choosing{_vision(found.unpruned)}",
    )
    return "\n".join([_setting(found.setting), "", aligned(HEADER, rows), "", *notes])


def as_data(found: Bench) -> dict[str, Any]:
    """Plain lists and numbers, for JSON."""
    return asdict(found)


def _setting(setting: Setting) -> str:
    visual = "+".join(map(str, setting.visual_tokens))
    others = "+".join(map(str, setting.other_tokens))
    return (
        f"{setting.model}: {visual} visual and {others} other tokens, {setting.device}, "
        f"{setting.dtype}, {setting.threads} threads, torch {setting.torch}, "
        f"{setting.tokens_out} tokens out, {setting.repeats} turns"
    )


def _unpruned(measured: Measured) -> list[str]:
    return [
        "unpruned", "all", *_tokens(measured), "-", _ms(measured.prefill), "-", _above(measured),
        _ms(measured.first_token), "-", _rate(measured), "-", _cache(measured), "-",
        _peak(measured), "-", _gflops(measured), "-",
    ]  # fmt: skip


def _row(row: Row) -> list[str]:
    measured, gains = row.measured, row.gains
    return [
        row.method,
        "-" if row.budget is None else str(row.budget),
        *_tokens(measured),
        _ms(measured.selection),
        _ms(measured.prefill),
        _of_turns(gains.prefill),
        _above(measured),
        _ms(measured.first_token),
        _of_turns(gains.first_token),
        _rate(measured),
        _of_turns(gains.decode),
        _cache(measured),
        _times(gains.cache),
        _peak(measured),
        _times(gains.peak),
        _gflops(measured),
        _times(gains.flops),
    ]


def _tokens(measured: Measured) -> list[str]:
    """Visual tokens left in the end, and the mean over blocks, of a sample on average."""
    samples = measured.facts.tokens_per_layer
    left = sum(each[-1] for each in samples) / len(samples)
    mean = sum(sum(each) / len(each) for each in samples) / len(samples)
    return [f"{left:g}", f"{mean:.1f}"]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f}"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _of_turns(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.2f}x [{ratio.low:.2f}-{ratio.high:.2f}]"


def _above(measured: Measured) -> str:
    return f"{100 * (measured.above_ideal - 1):+.0f} %"


def _rate(measured: Measured) -> str:
    return "-" if measured.decode_rate is None else f"{measured.decode_rate:.1f}"


def _cache(measured: Measured) -> str:
    return f"{measured.facts.cache_bytes / 2**20:.2f}"


def _peak(measured: Measured) -> str:
    return "-" if measured.peak_bytes is None else f"{measured.peak_bytes / 2**20:.1f}"


def _gflops(measured: Measured) -> str:
    return f"{(measured.facts.prefill_flops + measured.facts.selection_flops) / 1e9:.3f}"


def _vision(unpruned: Measured) -> str:
    vision = unpruned.facts.vision_flops
    return "" if vision is None else f"; the vision tower and projector add {vision / 1e9:.3f}"
