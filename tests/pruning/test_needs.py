"""Families that need a newer transformers than the lowest that tokencover takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import transformers

from tests.zoo import ZOO
from tokencover.errors import TokenCoverError
from tokencover.families import FAMILIES, family_of


@pytest.mark.parametrize(
    ("installed", "needs", "available"),
    [
        ("5.19.0", "", True),
        ("5.19.0", "5.20", False),
        ("5.20.0", "5.20", True),
        ("5.20.1.dev0", "5.21", False),
        ("6.0.0", "5.21", True),
        ("5.9.1", "5.10", False),
    ],
)
def test_versions_are_compared_by_numbers(
    installed: str, needs: str, available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers, "__version__", installed)
    family = replace(FAMILIES["llava-1.5"], needs={"llava": needs} if needs else {})
    assert (family.explain_version_fault("llava") is None) is available
    assert family.explain_version_fault("vipllava") is None


def test_a_model_of_a_family_that_needs_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ZOO["llava"].build(layers=2)
    newer: Any = replace(FAMILIES["llava-1.5"], needs={"llava": "5.99"})
    monkeypatch.setitem(FAMILIES._found, "llava-1.5", newer)
    with pytest.raises(TokenCoverError, match=r"it needs transformers 5\.99 or later, and 5\."):
        family_of(model)
