"""Budgets, and the paper's tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokencover as tc
from tokencover.budget import tokens_to_keep


@pytest.mark.parametrize(
    ("budget", "coupling", "expected"),
    [
        (64, None, (32, 32, 4)),
        (128, None, (48, 80, 6)),
        (192, None, (64, 128, 8)),
        (64, "strong", (24, 40, 2)),
        (128, "strong", (32, 96, 2)),
        (192, "strong", (48, 144, 4)),
        (64, "weak", (32, 32, 4)),
        (128, "weak", (56, 72, 7)),
        (192, "weak", (80, 112, 10)),
    ],
)
def test_the_printed_cells_for_images(
    budget: int, coupling: Any, expected: tuple[int, int, int]
) -> None:
    assert tc.paper_split(budget, 576, coupling=coupling) == tc.Split(*expected)


def test_paper_split_larger_images_same_fractions() -> None:
    assert tc.paper_split(320, 2880) == tc.Split(160, 160, 20)


@pytest.mark.parametrize(("coupling", "expected"), [("strong", (51, 85, 4)), ("weak", (68, 68, 9))])
def test_the_printed_cells_for_video(coupling: Any, expected: tuple[int, int, int]) -> None:
    assert tc.paper_split(136, 2048, coupling=coupling, modality="video") == tc.Split(*expected)


def test_video_fractions_constant_over_reduction() -> None:
    assert tc.paper_split(1024, 2048, coupling="strong", modality="video").prompt_budget == 384


def test_prompt_fraction_between_rates_interpolated() -> None:
    # 96 of 576 is a reduction of 5/6, half way between 7/9 and 8/9: (3/8 + 1/2) / 2 = 7/16.
    assert tc.paper_split(96, 576) == tc.Split(42, 54, 5)


def test_prompt_fraction_outside_rates_constant() -> None:
    assert tc.paper_split(16, 576).prompt_budget == 8
    assert tc.paper_split(480, 576).prompt_budget == 160


def test_the_fold_is_at_least_one() -> None:
    assert tc.paper_split(2, 576) == tc.Split(1, 1, 1)


@given(st.integers(1, 4000), st.integers(1, 4000), st.sampled_from([None, "strong", "weak"]))
def test_a_split_spends_the_whole_budget(budget: int, total: int, coupling: Any) -> None:
    split = tc.paper_split(budget, total, coupling=coupling)
    assert split.budget == min(budget, total)
    assert split.fold >= 1


@pytest.mark.parametrize(
    ("budget", "total", "expected"),
    [(64, 576, 64), (900, 576, 576), (0.111, 576, 64), (1.0, 576, 576), (0.5, 3, 2), (1e-9, 9, 1)],
)
def test_a_count_or_a_share(budget: float, total: int, expected: int) -> None:
    assert tokens_to_keep(budget, total) == expected


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (0, "at least 1 token, got 0"),
        (-3, "got -3"),
        (0.0, r"budget 0.0 as a float is a fraction in \(0, 1\]"),
        (64.0, "for 64 tokens write 64"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (True, "got True"),
        ("64", "got '64'"),
    ],
)
def test_invalid_budget_raises(budget: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        tokens_to_keep(budget, 576)


def test_image_without_tokens_raises() -> None:
    with pytest.raises(tc.InputError, match="0 visual tokens"):
        tc.paper_split(4, 0)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((-1, 3, 1), "prompt_budget.*got -1"),
        ((1, 2.0, 1), "visual_budget.*got 2.0"),
        ((1, 3, 0), "fold.*got 0"),
        ((0, 0, 1), "0 tokens"),
    ],
)
def test_invalid_split_raises(numbers: Any, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        tc.Split(*numbers)


@pytest.mark.parametrize(("name", "value"), [("coupling", "medium"), ("modality", "audio")])
def test_unknown_table_row_raises(name: str, value: Any) -> None:
    with pytest.raises(tc.InputError, match=value):
        tc.paper_split(64, 576, **{name: value})
