"""Profiles: what calibration learned, on disk and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tokencover as tc
from tests.budget.coupling_streams import one_heap, two_heaps
from tokencover.budget.profile import Profile, count_bins
from tokencover.files import write_document


def made() -> Profile:
    return Profile.of("some-model", 1, {"a": two_heaps(100), "b": one_heap(60), "none": []})


def test_it_describes_the_values() -> None:
    first, second = two_heaps(100), one_heap(60)
    profile = Profile.of("some-model", 2, {"a": first, "b": second, "none": []})
    assert (profile.model, profile.after, profile.count) == ("some-model", 2, 160)
    assert [task.name for task in profile.tasks] == ["a", "b"]
    assert profile.edges[0] == min(first + second)
    assert profile.edges[-1] == pytest.approx(max(first + second))
    assert sum(profile.histogram) == 160
    both = [sum(bins) for bins in zip(*(t.histogram for t in profile.tasks), strict=True)]
    assert tuple(both) == profile.histogram
    assert profile.tasks[0].mean == pytest.approx(sum(first) / 100)
    assert set(profile.versions) == {"tokencover", "torch", "transformers"}


def test_it_says_whether_there_are_two_groups() -> None:
    two = Profile.of("m", 1, {"a": two_heaps(200)})
    assert two.separated
    assert two.tau == pytest.approx(1.375, abs=0.02)
    one = Profile.of("m", 1, {"a": one_heap(200)})
    assert not one.separated
    assert "density" in one.objection
    alike = Profile.of("m", 1, {"a": [1.25] * 70})
    assert (alike.tau, alike.separated, sum(alike.histogram)) == (None, False, 70)


def test_a_histogram_counts_every_value_once() -> None:
    assert count_bins([0.0, 0.1, 0.5, 1.0], (0.0, 0.5, 1.0)) == (2, 2)


def test_it_comes_back_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profile.json"
    profile = made()
    profile.save(path)
    assert Profile.load(path) == profile
    assert hash(Profile.load(path)) == hash(profile)
    assert Profile.from_document(json.loads(json.dumps(profile.document()))) == profile
    assert [each.name for each in path.parent.iterdir()] == ["profile.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    profile = made()
    profile.save(path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_document(path, "x", {"version": 1, "value": float("nan")})
    assert Profile.load(path) == profile
    assert [each.name for each in tmp_path.iterdir()] == ["profile.json"]


def damaged(change: dict[str, Any]) -> str:
    return json.dumps({**made().document(), **change})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[1, 2]", "is not a tokencover coupling profile"),
        ('{"method": "mob"}', "is not a tokencover coupling profile"),
        (damaged({"version": 99}), "of version 99, this tokencover reads version 1"),
        (damaged({"tau": "high"}), "damaged.*ValueError"),
        (damaged({"separated": True, "tau": None}), "needs a threshold"),
        (damaged({"histogram": [1, 2]}), "has 2 bins for 41 edges"),
        (damaged({"tasks": [{"name": "a"}]}), "damaged.*KeyError"),
        (damaged({"surprise": 1}), "damaged.*surprise"),
        (damaged({"after": -1}), "got -1"),
    ],
)
def test_invalid_profile_raises(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(tc.InputError, match=message) as caught:
        Profile.load(path)
    assert str(path) in str(caught.value)
    assert "tokencover calibrate" in str(caught.value)


def test_load_missing_profile_raises(tmp_path: Path) -> None:
    with pytest.raises(tc.InputError, match=r"there is no .* profile at .*tokencover calibrate"):
        Profile.load(tmp_path / "nowhere.json")


def test_a_threshold_must_be_a_number() -> None:
    with pytest.raises(tc.InputError, match="finite number, got inf"):
        replace(made(), tau=float("inf"))
