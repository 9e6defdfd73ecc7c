"""Prometheus metrics, next to vLLM's at ``/metrics``.

The processor counts in the server's process, the model in the engine's. Both are combined if
``PROMETHEUS_MULTIPROC_DIR`` is set before the server starts, as `tokencover serve` does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

SECOND_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
COUPLING_BUCKETS = tuple(round(0.05 * step, 2) for step in range(1, 41))


class ServingMetrics:
    """All metrics; see `get_metrics`."""

    def __init__(self) -> None:
        from prometheus_client import Counter, Histogram

        self.images: Any = Counter("tokencover:images", "Pruned images.", ["method"])
        self.tokens_before: Any = Counter(
            "tokencover:visual_tokens_before", "Visual tokens of these images."
        )
        self.tokens_kept: Any = Counter(
            "tokencover:visual_tokens_kept", "Visual tokens that were kept."
        )
        self.tokens_saved: Any = Counter(
            "tokencover:visual_tokens_saved", "Visual tokens that were dropped."
        )
        self.rejected: Any = Counter(
            "tokencover:requests_rejected", "Requests with settings that are not allowed."
        )
        self.selection: Any = Histogram(
            "tokencover:selection_seconds", "Selection time per image.", buckets=SECOND_BUCKETS
        )
        self.failed: Any = Counter(
            "tokencover:selections_failed",
            "Images for which the method failed; evenly spaced tokens were kept.",
        )
        self.reused: Any = Counter(
            "tokencover:vision_outputs_reused", "Images whose encoding was reused."
        )
        self.coupling: Any = Histogram(
            "tokencover:coupling",
            "Coupling of prompt and image, where the split uses it.",
            buckets=COUPLING_BUCKETS,
        )


@lru_cache(maxsize=1)
def get_metrics() -> ServingMetrics:
    """Return the metrics of this process."""
    return ServingMetrics()
