"""What was measured of servers under load, and the tables of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tokencover.tables import TextTable

PERCENTILES = ("p50", "p95", "p99")


@dataclass(frozen=True)
class Load:
    """What was measured of one server under one load.

    Attributes
    ----------
    server, images : str
        "pruned" or "whole"; "fresh" or "repeated".
    concurrency, requests : int
        Clients at once, and how many requests they sent; `lost` of them failed.
    seconds, cpu_seconds : float
        On the clock, and of all processes of the server.
    first_token : dict
        Milliseconds to the first token, at p50, p95 and p99.
    megabytes : int
        The largest resident size of the server's processes so far.
    """

    server: str
    pictures: str
    concurrency: int
    requests: int
    lost: int
    seconds: float
    cpu_seconds: float
    first_token: dict[str, float]
    megabytes: int


def compute_percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many lie at or below."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def describe(loads: Sequence[Load]) -> TextTable:
    """One row for each load of each server, as it was measured."""
    rows = [
        [
            each.server, each.pictures, str(each.concurrency), str(each.requests), str(each.lost),
            f"{(each.requests - each.lost) / each.seconds:.2f}",
            f"{each.cpu_seconds / each.requests:.3f}",
            *(f"{each.first_token[name]:.0f}" for name in PERCENTILES),
            str(each.megabytes),
        ]
        for each in loads
    ]  # fmt: skip
    header = ["server", "pictures", "clients", "requests", "lost", "requests/s", "CPU s each"]
    return TextTable([*header, "TTFT ms p50", "p95", "p99", "MB"], rows, words=2)


def compare(loads: Sequence[Load]) -> TextTable:
    """One row for each load: what the whole model took over what the pruned one took."""
    rows = []
    by_load = {(each.server, each.pictures, each.concurrency): each for each in loads}
    for (server, kind, clients), pruned in by_load.items():
        if server != "pruned":
            continue
        whole = by_load["whole", kind, clients]
        rows.append([
            kind, str(clients), str(pruned.requests), str(pruned.lost + whole.lost),
            f"{whole.cpu_seconds / pruned.cpu_seconds:.2f}",
            f"{whole.seconds / pruned.seconds:.2f}",
            *(f"{whole.first_token[name] / pruned.first_token[name]:.2f}"
              for name in PERCENTILES),
            f"{whole.megabytes / pruned.megabytes:.2f}",
        ])  # fmt: skip
    header = ["pictures", "clients", "requests", "lost", "CPU", "requests/s"]
    above = "Whole over pruned; above 1 pruning is better."
    return TextTable([*header, "TTFT p50", "p95", "p99", "memory"], rows, above=above)
