"""Methods as a person writes them."""

from __future__ import annotations

import pytest

from tokencover.errors import InputError
from tokencover.methods import (
    FastV,
    FinalWipe,
    Method,
    MoB,
    PyramidDrop,
    make_method,
    name_method,
    parse_method,
    parse_methods,
)


def made(text: str, budget: float) -> Method:
    return make_method({**parse_method(text), "budget": budget})


def test_names_carry_settings_there_and_back() -> None:
    method = made("fastv:after=3:budget_mode=flops", 64)
    assert method == FastV(64, after=3, budget_mode="flops")
    assert made(name_method(method), 64) == method
    assert name_method(MoB(64)) == "mob"
    assert made("mob:split=strong:positions=reindex", 0.5) == MoB(
        0.5, split="strong", positions="reindex"
    )


def test_parse_several_methods_mixed_with_json() -> None:
    found = parse_methods('mob, fastv:after=3,{"method": "dart", "after": 2},scope')
    assert found == [
        {"method": "mob"},
        {"method": "fastv", "after": 3},
        {"method": "dart", "after": 2},
        {"method": "scope"},
    ]
    assert parse_methods("") == []


def test_wrapper_name_contains_both_methods() -> None:
    assert parse_method("final_wipe:inner=mob") == {
        "method": "final_wipe",
        "inner": {"method": "mob"},
    }
    assert name_method(FinalWipe(MoB(64))).startswith("final_wipe:inner=mob")
    deeper = FinalWipe(FastV(64, after=3), 0.5)
    assert name_method(deeper) == 'final_wipe:inner={"method":"fastv","after":3}:block=0.5'
    assert parse_methods(f"mob,{name_method(deeper)}") == [
        {"method": "mob"},
        {"method": "final_wipe", "inner": {"method": "fastv", "after": 3}, "block": 0.5},
    ]


def test_settings_of_several_numbers_are_lists() -> None:
    method = PyramidDrop(64, (2, 8))
    assert name_method(method) == "pyramiddrop:stages=[2,8]"
    assert made(name_method(method), 64) == method
    assert parse_methods("sparsevlm:stages=[2,8],mob") == [
        {"method": "sparsevlm", "stages": [2, 8]},
        {"method": "mob"},
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mob:after", "'after' is not a setting"),
        ("mob:=3", "'=3' is not a setting"),
        ("mob:budget=3", "a separate option"),
        ('{"method": "mob"', "is not JSON"),
        ('{"name": "mob"}', 'a "method" name'),
    ],
)
def test_what_cannot_be_read_is_quoted(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_method(text)
