"""Lemmas hold for any tokens; theorems are observed, not trusted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import directed_hausdorff
from torch import Tensor

import tokencover as tc
from tests.covering import oracle
from tests.covering.strategies import token_sets
from tokencover.theory.bounds import CoveringNumbers
from tokencover.theory.certificate import Certificate, certify

SLACK = 1e-6
"""Tokens are snapped to a grid, and a distance near 0 is a square root of rounding errors."""


@st.composite
def covers(draw: st.DrawFn) -> tuple[Tensor, Tensor, tc.Cover]:
    """Any two disjoint parts of any tokens, chosen by no method; one part may be empty."""
    visual = draw(token_sets(most=12))
    prompt = draw(token_sets(most=5, width=visual.shape[1]))
    order = draw(st.permutations(range(len(visual))))
    kept = draw(st.integers(1, len(visual)))
    first = draw(st.integers(0, kept))
    parts = torch.tensor(order[:first]), torch.tensor(order[first:kept])
    return visual, prompt, tc.Cover(*(part.to(torch.int64) for part in parts))


def unit(tokens: Tensor) -> np.ndarray:
    return torch.nn.functional.normalize(tokens.double(), dim=1).numpy()


def slow_hausdorff(first: Tensor, second: Tensor) -> float:
    if len(first) == 0:
        return math.inf
    pair = unit(first), unit(second)
    return float(max(directed_hausdorff(*pair)[0], directed_hausdorff(*pair[::-1])[0]))


@settings(max_examples=50)
@given(covers())
def test_distances_equal_scipy(problem: tuple[Tensor, Tensor, tc.Cover]) -> None:
    visual, prompt, cover = problem
    found = certify(*problem).distances
    kept = visual[cover.indices]
    whole, left = torch.cat([visual, prompt]), torch.cat([kept, prompt])
    for value, pair in (
        (found.coupling, (visual, prompt)),
        (found.prompt_radius, (visual[cover.prompt_centers], prompt)),
        (found.visual_radius, (visual[cover.visual_centers], visual)),
        (found.kept_to_prompt, (kept, prompt)),
        (found.kept_to_visual, (kept, visual)),
        (found.pruned, (whole, left)),
    ):
        assert value == pytest.approx(slow_hausdorff(*pair), abs=SLACK)


@settings(max_examples=50)
@given(covers())
def test_lemma_1_and_its_relaxation_hold(problem: tuple[Tensor, Tensor, tc.Cover]) -> None:
    far = certify(*problem).distances
    as_printed = max(
        min(far.kept_to_visual, far.coupling), min(far.kept_to_visual, far.kept_to_prompt)
    )
    assert far.lemma1 == as_printed
    assert far.pruned <= far.lemma1
    assert far.lemma1 <= far.relaxed + SLACK
    assert far.pruned <= far.coupling  # whatever is kept


@settings(max_examples=50)
@given(covers())
def test_lemma_2_holds_where_it_is_used(problem: tuple[Tensor, Tensor, tc.Cover]) -> None:
    """E4-1 of the paper: a * eps**-d <= N(., eps) <= the number of centres."""
    visual, prompt, cover = problem
    found = certify(*problem)
    far = found.distances
    for tokens, shape, radius, centers in (
        (prompt, found.prompt_regularity, far.prompt_radius, cover.prompt_centers),
        (visual, found.visual_regularity, far.visual_radius, cover.visual_centers),
    ):
        if shape is None or not 0 < radius < math.inf:
            continue
        assert shape.smallest <= radius <= shape.largest
        numbers, scale = CoveringNumbers.of(tokens), radius**-found.fit.dimension
        assert shape.lower * scale <= numbers.lower(radius) * (1 + 1e-9)
        assert numbers.lower(radius) <= len(centers)
        assert numbers.upper(radius) <= shape.upper * scale * (1 + 1e-9)


@settings(max_examples=50)
@given(covers())
def test_theorem_1_proved_parts_hold(
    problem: tuple[Tensor, Tensor, tc.Cover],
) -> None:
    found = certify(*problem)
    if found.theorem1 is None:
        return
    claim = found.theorem1
    assert claim.budget_holds
    assert claim.larger_radius >= claim.smallest_radius - SLACK
    assert claim.product == found.distances.prompt_radius * found.distances.visual_radius
    assert claim.smallest_radius <= found.distances.coupling


@settings(max_examples=50)
@given(covers())
def test_theorem_1_radius_meets_condition(
    problem: tuple[Tensor, Tensor, tc.Cover],
) -> None:
    """K < N(P, eta/z) + N(V, eta/z) just below the radius, by the lower bounds on N."""
    visual, prompt, cover = problem
    claim = certify(*problem).theorem1
    if claim is None or claim.smallest_radius == 0:
        return
    below = math.nextafter(claim.smallest_radius, 0.0)
    needed = CoveringNumbers.of(prompt).lower(below) + CoveringNumbers.of(visual).lower(below)
    assert len(cover) < needed


def counterexample() -> Certificate:
    """Three nearly equal patches of which two are kept; a word on either side of them."""
    visual = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.001], [1.0, 0.0, -0.001]])
    prompt = torch.tensor([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])
    return certify(visual, prompt, tc.Cover(torch.tensor([1]), torch.tensor([0])))


def test_theorem_1_has_a_counterexample() -> None:
    found = counterexample()
    claim = found.theorem1
    assert claim is not None
    # The words are at right angles: below sqrt(2)/2 they need two balls and the patches a third.
    assert claim.smallest_radius == pytest.approx(math.sqrt(0.5))
    assert found.distances.coupling == pytest.approx(math.sqrt(2 - math.sqrt(2)), abs=1e-6)
    assert claim.product == pytest.approx(0.001 * math.sqrt(2 - math.sqrt(2)), rel=1e-3)
    assert claim.budget_holds
    assert not claim.coupling_holds
    assert not claim.holds
    assert claim.larger_radius >= claim.smallest_radius  # what the proof does show
    # No other z rescues it: with delta = 0.03, far below eta, every eta/z > delta is too large.
    assert claim.product < 0.03**2


def test_theorem_2_visual_bound_has_counterexample() -> None:
    """MoB's visual centres keep away from its prompt centre, and cover nothing around that."""
    angles = torch.cat([torch.tensor([0.0, 0.001]), 1.5 + 0.02 * torch.arange(12)])
    visual = torch.stack([angles.cos(), angles.sin()], dim=1)
    prompt = torch.tensor([[1.0, 0.0], [1.0, 0.3]])
    cover = tc.mob(visual, prompt, budget=7, prompt_budget=1, fold=1)
    assert isinstance(cover, tc.Cover)
    assert cover.prompt_centers.tolist() == [0]
    assert min(cover.visual_centers.tolist()) == 2  # all six beyond the gap
    found = certify(visual, prompt, cover, fold=1)
    assert found.distances.visual_radius == pytest.approx(2 * math.sin(0.75), abs=SLACK)
    claim = found.theorem2
    assert claim is not None
    assert not claim.visual_holds
    assert claim.visual_bound < 0.2
    # Started from nothing, farthest point sampling is as good as its theorem says.
    alone = visual[tc.farthest_points(visual, budget=6)]
    assert slow_hausdorff(alone, visual) < claim.visual_bound


def test_the_formulas_of_both_theorems() -> None:
    """Recomputed from the printed definitions."""
    generator = torch.Generator().manual_seed(4)
    visual = torch.randn(40, 6, generator=generator)
    prompt = torch.randn(5, 6, generator=generator)
    cover = tc.mob(visual, prompt, budget=12, prompt_budget=5, fold=3)
    assert isinstance(cover, tc.Cover)
    found = certify(visual, prompt, cover, fold=3)
    first, second = found.theorem1, found.theorem2
    words, picture = found.prompt_regularity, found.visual_regularity
    assert first is not None
    assert second is not None
    assert words is not None
    assert picture is not None
    d, eta, far = found.fit.dimension, found.distances.coupling, found.distances
    assert d > 1
    scale = (4 * words.lower * picture.lower) ** (1 / d)
    assert first.budget_term == pytest.approx(scale * 12 ** (-2 / d))
    z = eta / first.smallest_radius
    assert z >= 1
    assert first.coupling_term == pytest.approx(eta**2 / z**2)
    assert first.best_radius == pytest.approx(max(eta / z, math.sqrt(scale) * 12 ** (-1 / d)))
    assert second.alpha == pytest.approx(eta * (words.upper * 3 * 5 / words.lower) ** (1 / d))
    assert second.beta == pytest.approx(2 * picture.upper ** (1 / d))
    alignment, preservation = second.alpha * 5 ** (-1 / d), second.beta * 7 ** (-1 / d)
    assert second.prompt_bound == pytest.approx(alignment)
    assert second.visual_bound == pytest.approx(preservation)
    assert second.bound == pytest.approx(max(alignment, preservation) + eta)
    assert second.prompt_holds == (far.prompt_radius <= alignment)
    assert second.visual_holds == (far.visual_radius <= preservation)
    assert second.step_holds == (words.upper * far.prompt_radius**-d >= 5)
    assert second.holds


@settings(max_examples=40)
@given(covers())
def test_fold_is_smallest_proposing_all_centers(
    problem: tuple[Tensor, Tensor, tc.Cover],
) -> None:
    visual, prompt, cover = problem
    fold = certify(*problem).fold
    everyone = len(visual)

    def proposed(count: int) -> set[int]:
        return set(oracle.choose_prompt_centers(visual.numpy(), prompt.numpy(), everyone, count))

    wanted = set(cover.prompt_centers.tolist())
    assert wanted <= proposed(fold)
    assert fold == 1 or not wanted <= proposed(fold - 1)


def test_without_prompt_centers_the_theorems_are_silent() -> None:
    cover = tc.mob(torch.eye(5), torch.eye(5)[:2], budget=3, prompt_budget=0, fold=1)
    assert isinstance(cover, tc.Cover)
    found = certify(torch.eye(5), torch.eye(5)[:2], cover)
    assert found.distances.prompt_radius == math.inf
    assert found.theorem1 is None
    assert found.theorem2 is None
    assert "Theorem 1 says nothing" in str(found)


def test_it_prints_what_it_found() -> None:
    text = str(counterexample())
    assert "kept 2 of 3 visual tokens for 2 prompt tokens" in text
    verdicts = {line.strip().split("  ")[0]: line for line in text.splitlines() if line}
    assert verdicts[">= D2 eta^2 = (eta/z)^2"].endswith("0.5   DOES NOT HOLD")
    assert verdicts[">= D1 K^(-2/d)"].endswith("holds")
    assert "0.765367" in verdicts["eta = d_H(V, P)"]


def test_invalid_covers_raise() -> None:
    tokens, words = torch.eye(4), torch.eye(4)[:2]

    def cover(first: list[int], second: list[int]) -> tc.Cover:
        return tc.Cover(*(torch.tensor(each, dtype=torch.int64) for each in (first, second)))

    with pytest.raises(tc.InputError, match="0 to 4, but there are 4"):
        certify(tokens, words, cover([0], [4]))
    with pytest.raises(tc.InputError, match="twice"):
        certify(tokens, words, cover([0, 1], [1]))
    with pytest.raises(tc.InputError, match="empty"):
        certify(tokens, words, cover([], []))
    with pytest.raises(tc.InputError, match=r"tc\.Cover"):
        certify(tokens, words, [0, 1])  # type: ignore[arg-type]
    with pytest.raises(tc.InputError, match="no token left"):
        certify(tokens, words[:0], cover([0], [1]))
    with pytest.raises(tc.InputError, match="at least 1"):
        certify(tokens, words, cover([0], [1]), fold=0)
