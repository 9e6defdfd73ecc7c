"""What can be registered as a method, and how methods are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

import tokencover as tc
from tests.methods.cases import CASES, Case
from tokencover.errors import InputError
from tokencover.methods import METHODS, ActsOnce, Card, Choice, View, register_method

CARD = Card("Yours", 2030, "none", "somewhere", "nothing")


class Whole(ActsOnce):
    """Keeps everything."""

    name: ClassVar[str] = "whole"
    card: ClassVar[Card] = CARD

    def choose(self, view: View) -> Choice:
        return Choice([torch.arange(count) for count in view.mask.sum(-1).tolist()])


def define(**changes: Any) -> type[Whole]:
    """A dataclass with some members changed."""
    members = {"__annotations__": {"after": int}, "after": 1, **changes}
    return dataclass(frozen=True)(type("Yours", (Whole,), members))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (3, "a method is a subclass of tokencover.Method, got 3"),
        (tc.Split, "a method is a subclass"),
        (Whole, "must be a dataclass"),
        (define(name=""), "needs a unique name .* got ''"),
        (define(name="two words"), "got 'two words'"),
        (define(name="a:b"), "got 'a:b'"),
        (define(card=None), "needs a card"),
        (define(__annotations__={}), "give it a field, after: int = 1"),
        (define(name="FASTV"), "another method named 'fastv' already"),
    ],
)
def test_register_invalid_method_raises(kind: Any, message: str) -> None:
    before = list(METHODS)
    with pytest.raises(InputError, match=message):
        register_method(kind)
    assert list(METHODS) == before


def test_unknown_names_and_settings_suggest_nearest() -> None:
    with pytest.raises(InputError, match=r"no method 'fasttv' \(did you mean 'fastv'\?\)"):
        tc.get_method("fasttv", budget=3)
    with pytest.raises(InputError, match=r"no setting aftr \(did you mean 'after'\?\); it has"):
        tc.get_method("fastv", budget=3, aftr=2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("after", ["1", True, -1, 1.0, None])
def test_invalid_after_every_method_raises(case: Case, after: Any) -> None:
    kind = METHODS[case.method]
    if not issubclass(kind, ActsOnce):
        assert not hasattr(kind, "after")
        return
    with pytest.raises(InputError, match="after must be a number of layers, 0 or more, got "):
        case.make(after=after)


def test_mob_positional_settings_order() -> None:
    assert issubclass(tc.MoB, ActsOnce)
    assert tc.MoB(64, "strong", 2, "image") == tc.MoB(
        budget=64, split="strong", after=2, per="image"
    )
    assert tc.to_json(tc.MoB(64)) == (
        '{"method": "mob", "budget": 64, "budget_mode": "exact", "positions": "original", '
        '"split": "paper", "after": 1, "per": "prompt"}'
    )
