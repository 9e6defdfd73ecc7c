"""Links: what is written is read back, and what others write into them is checked."""

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokencover.studio.link import MAX_TEXT_LENGTH, METHOD_DEFAULT, Setup, read_query, write_query

SETUPS = st.builds(
    Setup,
    question=st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    medium=st.sampled_from(["image", "video"]),
    scene=st.integers(0, 1_000_000),
    method=st.sampled_from(["mob", "fastv:after=3", '{"method": "mob"}']),
    other=st.sampled_from(["", "fastv"]),
    budget=st.integers(1, 1_000_000),
    split=st.sampled_from(["paper", "weak"]),
    after=st.integers(0, 1000) | st.just(METHOD_DEFAULT),
    uploaded=st.integers(0, 1),
)


@given(SETUPS)
def test_a_link_brings_the_setup_back(setup: Setup) -> None:
    query = dict(parse_qsl(write_query(setup), keep_blank_values=True))
    assert read_query(query) == (setup, [])


def test_what_is_as_usual_is_not_in_the_link() -> None:
    assert write_query(Setup()) == ""
    assert write_query(Setup(budget=32)) == "budget=32"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("budget", "0"),
        ("budget", "-1"),
        ("budget", "64.5"),
        ("budget", "1e9"),
        ("budget", "9" * 5000),
        ("budget", "٣"),
        ("scene", "x"),
        ("scene", "1000001"),
        ("after", ""),
        ("medium", "film"),
        ("question", "a" * (MAX_TEXT_LENGTH + 1)),
    ],
)
def test_a_wrong_value_is_left_out_and_told(name: str, value: str) -> None:
    setup, faults = read_query({name: value, "split": "weak"})
    assert setup == Setup(split="weak")
    (fault,) = faults
    assert name in fault
    assert len(fault) < 200


def test_what_a_setup_does_not_have_is_ignored() -> None:
    assert read_query({"__class__": "x", "utm_source": "y"}) == (Setup(), [])


def test_a_model_for_clips_is_asked_about_clips() -> None:
    """The address says nothing, or what another model was asked about."""
    assert read_query({}, ("video",)) == (Setup(medium="video"), [])
    setup, faults = read_query({"medium": "image"}, ("video",))
    assert setup.medium == "video"
    assert "medium was ignored: 'image' is not" in faults[0]
