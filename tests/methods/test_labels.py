"""Labels, representations and JSON are the same in every process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.methods.cases import CASES, Case
from tokencover.budget import SPLITS, CouplingSplit, FixedSplit, Split
from tokencover.methods import Method, MoB, name_method, to_json


def list_texts() -> list[str]:
    """All texts that name a method, for every method and every split."""
    methods: list[Method] = [case.make() for case in CASES]
    for kind in SPLITS:
        needed = {CouplingSplit: (1.0,), FixedSplit: (Split(4, 3, 1),)}.get(kind, ())
        methods.append(MoB(7, split=kind(*needed)))
    return [text for method in methods for text in (name_method(method), repr(method), str(method),
                                                    to_json(method))]  # fmt: skip


def test_texts_are_the_same_in_another_process() -> None:
    texts = list_texts()
    assert not [text for text in texts if " at 0x" in text]
    code = f"from {__name__} import list_texts; print('\\n'.join(list_texts()))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.splitlines() == texts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_labels_unchanged_after_use(case: Case) -> None:
    method = case.make()
    before = name_method(method), repr(method), to_json(method)
    _ = getattr(method, "rule", None), getattr(method, "_wiped_inner", None)
    assert (name_method(method), repr(method), to_json(method)) == before
