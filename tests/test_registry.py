"""Things known by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from tokencover import registry
from tokencover.errors import InputError, LoadError
from tokencover.registry import Registry, suggest


def check_word(thing: object) -> str:
    if not isinstance(thing, str):
        raise InputError(f"a word is a string, got {thing!r}.")
    return thing


def make_words(**settings: Any) -> Registry[str]:
    words: Registry[str] = Registry("word", "tokencover.tests.words", check_word, **settings)
    words.register("pear")
    words.register("Apple")
    return words


def test_registry_ignores_case_and_keeps_order() -> None:
    words = make_words()
    assert words["APPLE"] == "Apple"
    assert list(words) == words.list_registered() == ["pear", "Apple"]
    assert len(words) == 2
    assert "apple" in words
    assert "plum" not in words
    assert list(make_words(order=str.lower)) == ["Apple", "pear"]


def test_unknown_name_lists_registered_names() -> None:
    message = r"there is no word 'aple' \(did you mean 'apple'\?\); there are apple, pear\."
    with pytest.raises(InputError, match=message):
        make_words()["aple"]
    with pytest.raises(InputError, match="there is no word 'xyz'; there are"):
        make_words()["xyz"]


def test_a_name_belongs_to_one_thing() -> None:
    words = make_words()
    assert words.register("pear") == "pear"
    with pytest.raises(InputError, match="another word named 'pear' already"):
        words.register("PEAR")
    with pytest.raises(InputError, match="a word is a string, got 3"):
        words.register(3)  # type: ignore[arg-type]


def test_redefined_class_replaces_old_one() -> None:
    kinds: Registry[type] = Registry("kind", "tokencover.tests.kinds", lambda _: "same")

    def define() -> type:
        class Again:
            pass

        return Again

    first, second = define(), define()
    kinds.register(first)
    kinds.register(second)
    assert kinds["same"] is second


def test_entry_points_loaded_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = EntryPoints([EntryPoint("theirs", "string:digits", "tokencover.tests.words")])
    monkeypatch.setattr(registry, "entry_points", lambda group: found.select(group=group))
    words = make_words()
    assert words["pear"] == "pear"
    assert words.list_registered() == ["pear", "Apple"]
    assert words["0123456789"] == "0123456789"
    assert len(words) == 3


def test_a_package_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = EntryPoints([EntryPoint("theirs", "string:nothing", "tokencover.tests.words")])
    monkeypatch.setattr(registry, "entry_points", lambda group: found.select(group=group))
    with pytest.raises(LoadError, match=r"the word 'theirs' of package .* Repair or uninstall"):
        list(make_words())


def test_suggest_only_near_names() -> None:
    assert suggest("fasv", ["fastv", "mob"]) == " (did you mean 'fastv'?)"
    assert suggest("something", ["fastv", "mob"]) == ""
