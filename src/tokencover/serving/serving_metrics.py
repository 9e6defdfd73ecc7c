"""Counters for Prometheus, beside vLLM's own at ``/metrics``.

The processor counts in the server's process, the model in the engine's. Both are shown together if
``PROMETHEUS_MULTIPROC_DIR`` is set before the server starts, as `tokencover serve` does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
COUPLINGS = tuple(round(0.05 * step, 2) for step in range(1, 41))


class ServingMetrics:
    """All that is counted; see `get_metrics`."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Histogram

        self.pictures: Any = Counter(
            "tokencover:pictures", "Pictures of requests that were pruned.", ["method"]
        )
        self.tokens_before: Any = Counter(
            "tokencover:visual_tokens_before", "Visual tokens of these pictures."
        )
        self.tokens_kept: Any = Counter(
            "tokencover:visual_tokens_kept", "Visual tokens of these pictures that were kept."
        )
        self.tokens_saved: Any = Counter(
            "tokencover:visual_tokens_saved", "Visual tokens that the decoder never saw."
        )
        self.refused: Any = Counter(
            "tokencover:requests_refused", "Requests that asked for something they may not have."
        )
        self.choosing: Any = Histogram(
            "tokencover:choosing_seconds", "Time to choose, for each picture.", buckets=SECONDS
        )
        self.failed: Any = Counter(
            "tokencover:choices_failed",
            "Pictures for which the method failed; evenly spaced tokens were kept instead.",
        )
        self.remembered: Any = Counter(
            "tokencover:tower_outputs_reused", "Pictures that the vision tower need not see again."
        )
        self.coupling: Any = Histogram(
            "tokencover:coupling",
            "Coupling of words and picture, where a split reads it.",
            buckets=COUPLINGS,
        )


@lru_cache(maxsize=1)
def get_metrics() -> ServingMetrics:
    """The counters of this process."""
    return ServingMetrics()
