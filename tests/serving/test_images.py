"""Vision-encoder outputs within a bound, fingerprints, parts, and the tensors of single images."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencover.serving.images import (
    VisionCache,
    compute_fingerprint,
    join_images,
    split_batches,
    split_images,
)

BYTES = 4 * 10


def make_output(value: float, rows: int = 10) -> torch.Tensor:
    return torch.full((rows, 1), value)


def test_what_was_used_last_is_remembered() -> None:
    memory = VisionCache(3 * BYTES)
    for number in range(3):
        memory.put(f"p{number}", make_output(float(number)))
    assert memory.get("p0") is not None  # used: now p1 is the oldest
    memory.put("p3", make_output(3.0))
    assert memory.get("p1") is None
    assert [memory.get(f"p{number}") is not None for number in (0, 2, 3)] == [True] * 3
    assert (len(memory), memory.used) == (3, 3 * BYTES)


def test_the_bound_holds() -> None:
    memory = VisionCache(3 * BYTES)
    memory.put("large", make_output(1.0, 31))
    assert memory.get("large") is None
    memory.put("", make_output(1.0))
    VisionCache(0).put("none", make_output(1.0))
    assert len(memory) == 0
    memory.put("two", make_output(2.0, 20))
    memory.put("one", make_output(1.0, 11))
    assert memory.get("two") is None
    assert memory.used == 44


def test_a_remembered_output_is_a_copy_of_its_own() -> None:
    memory, batch = VisionCache(100 * BYTES), torch.zeros(100, 1)
    memory.put("slice", batch[:10])
    batch.fill_(1.0)
    found = memory.get("slice")
    assert found is not None
    assert found.tolist() == [[0.0]] * 10
    assert found.untyped_storage().nbytes() == BYTES


def test_fingerprints_tell_pictures_apart() -> None:
    first, second = torch.zeros(3, 4), torch.zeros(3, 4)
    second[2, 3] = 1e-7
    sizes = torch.tensor([3, 4])
    same = compute_fingerprint([first, sizes])
    assert same == compute_fingerprint([first.clone(), sizes.clone()])
    others = [[second, sizes], [first, sizes + 1], [first.reshape(4, 3), sizes], [first], [sizes]]
    assert len({same, *map(compute_fingerprint, others)}) == 1 + len(others)
    assert compute_fingerprint([first.to(torch.bfloat16)])


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 100))
def test_parts_hold_no_more_than_fits(sizes: list[int], limit: int) -> None:
    parts = split_batches(sizes, limit)
    assert [place for part in parts for place in part] == list(range(len(sizes)))
    for part in parts:
        assert len(part) == 1 or sum(sizes[place] for place in part) <= limit
    for before, after in pairwise(parts):
        assert sum(sizes[place] for place in before) + sizes[after[0]] > limit


def test_pictures_of_a_row_each() -> None:
    images = {"pixel_values": torch.randn(3, 2, 4, 4), "image_sizes": torch.tensor([[4, 4]] * 3)}
    pictures = split_images(images)
    assert len(pictures) == 3
    joined = join_images([pictures[2], pictures[0]])
    assert torch.equal(joined["pixel_values"], images["pixel_values"][[2, 0]])
    assert joined["image_sizes"].shape == (2, 2)


def test_pictures_of_different_sizes_stay_a_list() -> None:
    images = {"pixel_values": [torch.randn(2, 3), torch.randn(4, 3)]}
    joined = join_images(split_images(images))
    assert [each.shape[0] for each in joined["pixel_values"]] == [2, 4]


def test_pictures_as_rows_of_patches() -> None:
    grids = torch.tensor([[1, 2, 4], [1, 2, 2]])
    images = {"pixel_values": torch.arange(24.0).reshape(12, 2), "image_grid_thw": grids}
    first, second = split_images(images)
    assert (first["pixel_values"].shape[0], second["pixel_values"].shape[0]) == (8, 4)
    joined = join_images([second, first])
    assert joined["image_grid_thw"].tolist() == [[1, 2, 2], [1, 2, 4]]
    assert torch.equal(joined["pixel_values"][:4], images["pixel_values"][8:])
    assert torch.equal(join_images([first, second])["pixel_values"], images["pixel_values"])


@pytest.mark.parametrize("count", [1, 4])
def test_wholes_come_back(count: int) -> None:
    images = {"pixel_values": torch.randn(count, 2, 3)}
    assert torch.equal(join_images(split_images(images))["pixel_values"], images["pixel_values"])
