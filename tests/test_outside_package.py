"""A package that is not ours brings a method, a split rule and a model family.

It is installed as far as Python is concerned: a module and the ``dist-info`` folder that an
installer would leave, both on the path of a fresh interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = '''
"""What another package holds."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from tokencover.budget import Decision, Split, SplitRule, Tokens
from tokencover.methods import ActsOnce, Card, Choice, View
from tokencover.families import FAMILIES


@dataclass(frozen=True)
class Theirs(ActsOnce):
    """Keep every s-th token, K in all."""

    name: ClassVar[str] = "theirs"
    card: ClassVar[Card] = Card("Their method", 2031, "none", "after 1 decoder layer", "steps")
    reads_prompt = False
    after: int = 1

    def choose(self, view: View) -> Choice:
        counts = zip(view.mask.sum(-1).tolist(), self.num_kept(view), strict=True)
        return Choice([torch.arange(left) * total // left for total, left in counts])


@dataclass(frozen=True)
class ThirdsSplit(SplitRule):
    """One third for the prompt."""

    name: ClassVar[str] = "thirds"

    def decide(self, budget: int, tokens: Tokens) -> Decision:
        return Decision(Split(budget // 3, budget - budget // 3, budget))


FAMILY = replace(FAMILIES["LLaVA-1.5"], name="Their LLaVA", model_types=("their_llava",))
'''

ENTRY_POINTS = """
[tokencover.methods]
theirs = their_package:Theirs

[tokencover.splits]
thirds = their_package:ThirdsSplit

[tokencover.families]
their_llava = their_package:FAMILY
"""


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder, "their-package", "their_package", MODULE, ENTRY_POINTS)
    return folder


def install(folder: Path, package: str, module: str, code: str, points: str) -> None:
    (folder / f"{module}.py").write_text(code.lstrip())
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(points.lstrip())


def python(
    site: Path, code: str, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(site), *([before] if before else [])])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
    )


LISTING = "from tokencover.cli.app import main; assert main(['methods']) == main(['models']) == 0"

CATALOG = """
from tokencover.catalog import read_families, read_methods
theirs = next(each for each in read_methods() if each.name == "theirs")
mob = next(each for each in read_methods() if each.name == "mob")
assert (theirs.title, theirs.module) == ("Their method", "their_package")
assert "Their LLaVA" in theirs.families and "Their LLaVA" in mob.families
print([each.name for each in read_families()][-1])
"""

BY_NAME = """
import torch
import tokencover as tc

method = tc.get_method("theirs", budget=8)
assert type(method).__module__ == "their_package"
assert tc.from_json(tc.to_json(method)) == method
ours = tc.from_json('{"method": "mob", "budget": 9, "split": {"rule": "thirds"}}')
assert tc.from_json(tc.to_json(ours)) == ours
assert tc.get_method("mob", budget=9, split="thirds").split == "thirds"

from PIL import Image
from tokencover.prompting import make_inputs
model, processor = tc.load_pebble()
model.config.model_type = "their_llava"
inputs = make_inputs(processor, [([Image.new("RGB", (192, 192))], "what is this ?")])
for method in (method, ours, tc.get_method("mob", budget=9, split="thirds")):
    with torch.no_grad(), tc.prune(model, method, processor=processor) as pruned:
        model(**inputs)
    print(len(pruned.trace[0].kept), end=" ")
print(len(pruned.trace[0].prompt_centers))
"""

ASKING = ("ask", "--method", "theirs", "--budget", "8", "--out", "ask")
EVALUATING = (
    "evaluate", "--methods", "theirs", "--budgets", "8", "--limit", "1",
    "--tasks", "pebble/color", "--timing-batches", "0", "--out", "results",
)  # fmt: skip
COMMANDS = f"from tokencover.cli.app import main; assert main({ASKING}) == main({EVALUATING}) == 0"

ONE_AFTER_THE_OTHER = """
import contextlib, io, json, sys

printed = []
for code in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {"__name__": "__main__"})
    printed.append(out.getvalue())
print(json.dumps(printed))
"""


def test_outside_package_names_listed_and_usable(site: Path, tmp_path: Path) -> None:
    """One test, because all of it runs in one process."""
    done = python(site, ONE_AFTER_THE_OTHER, LISTING, CATALOG, BY_NAME, COMMANDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    listed, catalog, by_name, commands = json.loads(done.stdout.splitlines()[-1])
    assert "theirs" in listed
    assert "Their LLaVA" in listed
    assert "their_llava" in listed
    assert catalog.strip() == "Their LLaVA"
    assert by_name.split() == ["8", "9", "9", "3"]
    assert "8 of 576" in commands
    assert any("theirs" in path.read_text() for path in (tmp_path / "results").rglob("*.json*"))


def test_broken_package_named_in_error(tmp_path: Path) -> None:
    points = "[tokencover.methods]\nbroken = broken_package:Broken\n"
    install(tmp_path, "broken-package", "broken_package", "raise RuntimeError('no luck')\n", points)
    code = """
import sys
import tokencover as tc
from tokencover.cli.app import main
print(tc.get_method('fastv', budget=3).name)
sys.exit(main(["methods"]))
"""
    done = python(tmp_path, code)
    assert done.stdout.strip() == "fastv"  # others can be used all the same
    assert done.returncode == 1
    assert "the method 'broken' of package 'broken-package' cannot be loaded" in done.stderr
    assert "no luck" in done.stderr


def test_what_is_not_installed_can_be_registered(tmp_path: Path) -> None:
    (tmp_path / "loose_module.py").write_text(MODULE.lstrip())
    code = """
import loose_module
import tokencover as tc
from tokencover.budget import SPLITS
from tokencover.catalog import read_families, read_methods

for name in ("Theirs", "ThirdsSplit", "FAMILY"):
    registered = getattr(loose_module, name)
    assert tc.register(registered) is registered
    print(int("theirs" in tc.METHODS), int("theirs" in [each.name for each in read_methods()]),
          int("thirds" in SPLITS), int("Their LLaVA" in [each.name for each in read_families()]))
"""
    done = python(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["1 1 0 0", "1 1 1 0", "1 1 1 1"]
