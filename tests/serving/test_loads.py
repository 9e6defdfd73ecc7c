"""Tables of the load test, on numbers that are known."""

from __future__ import annotations

import pytest

from serving_loads import Load, compare, compute_percentile, describe


def make_load(server: str, seconds: float, lost: int = 0) -> Load:
    first = {"p50": 10 * seconds, "p95": 20 * seconds, "p99": 40 * seconds}
    return Load(server, "fresh", 8, 20, lost, seconds, 2 * seconds, first, int(100 * seconds))


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 50), (0.95, 95), (0.99, 99), (1.0, 100)]
)
def test_percentiles(share: float, expected: int) -> None:
    assert compute_percentile(range(100, 0, -1), share) == expected


def test_ratios_are_whole_over_pruned() -> None:
    table = compare([make_load("whole", 6.0, lost=1), make_load("pruned", 4.0)])
    assert table.rows == [["fresh", "8", "20", "1", *["1.50"] * 6]]


def test_what_was_measured_is_told_as_it_is() -> None:
    (row,) = describe([make_load("pruned", 4.0, lost=10)]).rows
    assert row == ["pruned", "fresh", "8", "20", "10", "2.50", "0.400", "40", "80", "160", "400"]
