"""The tested versions stand in one place, and a newer one is noted once."""

from __future__ import annotations

import re
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tokencover.errors import TokenCoverWarning
from tokencover.families.family import read_version
from tokencover.pruning import internals, prune
from tokencover.pruning.internals import TESTED, warn_of_newer_versions

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def forget_note() -> Iterator[None]:
    warn_of_newer_versions.cache_clear()
    yield
    warn_of_newer_versions.cache_clear()


def pin(file: str, name: str) -> tuple[int, int]:
    found = re.search(rf"^{name}==(\S+)", (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None
    return read_version(found[1])


def test_the_range_is_that_of_the_pins_and_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, (lowest, newest) in TESTED.items():
        assert f"{name}>={lowest}" in [each.split(" ")[0] for each in project["dependencies"]]
        assert read_version(lowest) <= pin("constraints-lowest.txt", name)
        assert pin("constraints.txt", name) <= read_version(newest)
        assert f"| {name} | {lowest} | {newest} |" in (ROOT / "docs/guide/limits.md").read_text()
    assert pin("constraints-lowest.txt", "transformers") == read_version(TESTED["transformers"][0])
    assert pin("constraints.txt", "transformers") == read_version(TESTED["transformers"][1])


def test_a_newer_version_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TESTED, "transformers", ("5.0", "5.1"))
    model = built("llava")
    with pytest.warns(TokenCoverWarning, match=r"transformers 5\.\S+ is newer than 5\.1") as caught:
        prune(model, KeepRandom(7)).remove()
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(model, KeepRandom(7)).remove()


def test_a_tested_version_is_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internals, "version", lambda name: TESTED[name][1] + ".7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prune(built("llava"), KeepRandom(7)).remove()
