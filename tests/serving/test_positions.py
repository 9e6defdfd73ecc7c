"""Positions of short prompts, and places that travel with states."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencover.serving.images import (
    PlacedImage,
    PositionOffsets,
    compute_text_positions,
    pack_offsets,
    unpack_offsets,
)

Parts = list[tuple[int, int, int]]


def count_slowly(parts: Parts, ending: int) -> tuple[list[int], int]:
    """Go through the prompt token by token: (text, kept, advance) of each image, then text."""
    found, position = [], 0
    for text, kept, advance in parts:
        for _ in range(text):
            found.append(position)
            position += 1
        found += [position] * kept
        position += advance
    for _ in range(ending):
        found.append(position)
        position += 1
    return found, position


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7), st.integers(1, 600)), max_size=4),
    st.integers(0, 6),
)
def test_text_lies_where_it_would_lie_after_whole_pictures(parts: Parts, ending: int) -> None:
    pictures, offset = [], 0
    for text, kept, advance in parts:
        pictures.append(PlacedImage(offset + text, kept, advance))
        offset += text + kept
    positions, delta = compute_text_positions(offset + ending, pictures)
    expected, following = count_slowly(parts, ending)
    assert positions.tolist() == [expected] * 3
    assert offset + ending + delta == following


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_places_lose_nothing_in_16_bits(dtype: torch.dtype) -> None:
    places = torch.tensor([[0, 1], [255, 256], [257, 575], [2879, 16383], [65535, 511]])
    like = torch.zeros(1, dtype=torch.float32).to(dtype)
    columns = pack_offsets(places, like)
    assert columns.dtype == dtype
    assert unpack_offsets(columns).tolist() == places.tolist()


def test_shifts_reach_the_tokens_of_their_step_and_no_others() -> None:
    shifts = PositionOffsets((1, 2), max_length=6)
    states = torch.arange(12.0).reshape(3, 4)
    places = torch.tensor([[5, 300], [7, 2], [0, 9]])
    rows = torch.cat([states, pack_offsets(places, states)], -1)
    visual = torch.tensor([False, True, True, False, True])
    stripped = shifts.strip([rows[:2], rows[2:]], visual)
    assert torch.equal(torch.cat(stripped), states)
    positions = torch.full((3, 6), 10)
    expected = [[10] * 6, [10, 15, 17, 10, 10, 10], [10, 310, 12, 10, 19, 10]]
    assert shifts.add_to(positions).tolist() == expected
    # The next step has no images: nothing of the last one is left, nor in what was padded.
    assert shifts.strip([], None) == []
    assert shifts.add_to(positions).tolist() == positions.tolist()


def test_sums_lie_at_one_address() -> None:
    shifts = PositionOffsets((0,), max_length=8)
    first = shifts.add_to(torch.zeros(3, 8, dtype=torch.int64)).data_ptr()
    assert shifts.add_to(torch.ones(3, 5, dtype=torch.int64)).data_ptr() == first
