"""How well quantities of the theory tell what pruning hurts: `research/theory/predictions.py`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.theory.predictions import compute_auc, measure_auc

questions = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 2)), min_size=2, max_size=24
)


@settings(max_examples=60, deadline=None)
@given(questions)
def test_the_area_counts_pairs_of_one_kind(asked: list[tuple[int, bool, int]]) -> None:
    pairs = [
        (value > other) + (value == other) / 2
        for value, hurt, kind in asked
        for other, hurt_too, same in asked
        if hurt and not hurt_too and kind == same
    ]
    values, hurt, kinds = (np.array(each) for each in zip(*asked, strict=True))
    found = compute_auc(values.astype(float), hurt, kinds)
    assert found == pytest.approx(sum(pairs) / len(pairs) if pairs else np.nan, nan_ok=True)


def test_the_interval_holds_the_area() -> None:
    random = np.random.default_rng(1)
    hurt = random.random(200) < 0.4
    values = random.normal(size=200) + hurt
    found = measure_auc(values, hurt, np.zeros(200), np.arange(200) // 5)
    assert 0.6 < found.low < found.mean < found.high < 0.9


def test_without_pairs_there_is_no_area() -> None:
    found = measure_auc(np.arange(4.0), np.ones(4, dtype=bool), np.zeros(4), np.arange(4))
    assert np.isnan([found.mean, found.low, found.high]).all()
