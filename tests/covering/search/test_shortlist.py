"""The quick search among a few tokens, against the obvious one."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencover.covering.search.bounds import choose_from_shortlist


def obvious(
    nearest: list[float], each_other: list[list[float]], most: int, limit: float, tolerance: float
) -> list[list[int]]:
    steps: list[list[int]] = []
    left = set(range(len(nearest)))
    while len(steps) < most and left:
        smallest = min(nearest[place] for place in left)
        if smallest >= limit:
            break
        rivals = [place for place in left if nearest[place] <= smallest + tolerance]
        rivals.sort(key=lambda place: (nearest[place], place))
        steps.append(rivals)
        left.remove(rivals[0])
        nearest = [max(pair) for pair in zip(nearest, each_other[rivals[0]], strict=True)]
    return steps


@given(st.data())
def test_equals_the_obvious_search(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 12))
    steps = data.draw(st.sampled_from([4, 10, 2**20]))  # few steps make many ties
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20)))
    nearest = torch.randint(-steps, steps, (size,), generator=generator) / steps
    each_other = torch.randint(-steps, steps, (size, size), generator=generator) / steps
    most = data.draw(st.integers(0, size + 1))
    limit = data.draw(st.sampled_from([-0.5, 0.0, 0.5, float("inf")]))
    tolerance = data.draw(st.sampled_from([0.0, 0.25, 3.0]))
    expected = obvious(nearest.tolist(), each_other.tolist(), most, limit, tolerance)
    steps_found = choose_from_shortlist(
        nearest, each_other, most=most, limit=limit, tolerance=tolerance
    )
    assert steps_found == expected
