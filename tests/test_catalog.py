"""The list of methods and families that is read without torch, against the classes themselves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tokencover as tc
from tests.test_package import run
from tokencover.catalog import (
    describe_families,
    describe_methods,
    describe_refused,
    read_families,
    read_methods,
    read_refused,
)
from tokencover.families import FAMILIES

ROOT = Path(__file__).parent.parent
HALF_A_SECOND = 0.5

LISTING = """
import resource, sys
from tokencover.catalog import read_families, read_methods
assert len(read_methods()) > 20 and len(read_families()) > 10
assert "torch" not in sys.modules
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""

NEW_METHOD = '''
"""A method just being written."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from tokencover.methods.base import ActsOnce, Card, Choice, View
from tokencover.methods.registry import register_method


@register_method
@dataclass(frozen=True)
class FirstTokens(ActsOnce):
    """Keep the first K tokens."""

    name: ClassVar[str] = "first"
    card: ClassVar[Card] = Card("First", 2024, "none", "after 1 block", "order", "2402.00001")
    after: int = 1

    def choose(self, view: View) -> Choice:
        return Choice([torch.arange(count) for count in self.num_kept(view)])
'''


def test_generated_files_are_up_to_date() -> None:
    """Run `make catalog` if this fails: it writes catalog, stubs and tables again."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "write_catalog.py"), "--check"],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )
    assert done.returncode == 0, f"run make catalog\n{done.stderr}"


def test_the_file_says_what_the_classes_say() -> None:
    assert read_methods() == describe_methods()
    assert read_families() == describe_families()
    assert read_refused() == describe_refused()
    assert [each.name for each in read_methods()] == [method.name for method in tc.METHODS]
    assert [each.name for each in read_families()] == [family.name for family in FAMILIES]


def test_listing_takes_under_half_cpu_second() -> None:
    assert float(run(LISTING)) < HALF_A_SECOND


def test_mob_is_listed_first_and_controls_last() -> None:
    entries = read_methods()
    assert [each.name for each in entries[:3]] == ["mob", "nearest", "farthest"]
    assert {each.name for each in entries[-3:]} == {"random", "grid", "downsample"}
    papers = [each.paper for each in entries[3:-3] if each.paper]
    assert papers == sorted(papers)


def test_register_accepts_three_kinds_only() -> None:
    for thing in (3, "mob", tc.Split, tc.MoB(64)):
        with pytest.raises(tc.InputError, match="register takes a subclass"):
            tc.register(thing)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A repository with one more file: all is linked but what is written or added to."""
    package = tmp_path / "src" / "tokencover"
    package.mkdir(parents=True)
    written = {"methods", "catalog.json", "__init__.pyi", "__pycache__"}
    for path in (ROOT / "src" / "tokencover").iterdir():
        if path.name not in written:
            (package / path.name).symlink_to(path)
    for name in ("catalog.json", "__init__.pyi"):
        shutil.copy(ROOT / "src" / "tokencover" / name, package)
    shutil.copytree(ROOT / "src" / "tokencover" / "methods", package / "methods")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "docs" / "reference").mkdir(parents=True)
    for page in ("methods.md", "families.md"):
        shutil.copy(ROOT / "docs" / "reference" / page, tmp_path / "docs" / "reference")
    (package / "methods" / "first_tokens.py").write_text(NEW_METHOD.lstrip())
    return tmp_path


def test_a_new_method_is_one_file(scratch: Path) -> None:
    """It is there at once by class, name and JSON; `make catalog` writes the rest by itself."""
    code = f"""
import runpy, sys
import tokencover as tc
method = tc.get_method("first", budget=3)
assert method == tc.FirstTokens(3) == tc.from_json(tc.to_json(method))
from tokencover.methods import FirstTokens

sys.stderr = sys.stdout
for options in (["--check"], [], ["--check"]):
    sys.argv[1:] = options
    try:
        runpy.run_path({str(scratch / "tools" / "write_catalog.py")!r}, run_name="__main__")
    except SystemExit as end:
        print("exit code", end.code)
"""
    before, written, after = re.findall(
        r"(.*?)exit code (.)", run(code, path=scratch / "src"), re.S
    )
    assert before[0].count("run `make catalog`") == 4
    assert [before[1], written[1], after[1]] == ["1", "0", "0"]
    code = (
        "import sys, tokencover as tc; from tokencover.catalog import read_methods; "
        "names = [each.name for each in read_methods()]; "
        "print(names.index('fastv') - names.index('first'), 'FirstTokens' in tc.__all__, "
        "'torch' in sys.modules)"
    )
    assert run(code, path=scratch / "src").split() == ["1", "True", "False"]
    package = scratch / "src" / "tokencover"
    for stub in (package / "__init__.pyi", package / "methods" / "__init__.pyi"):
        assert "import FirstTokens as FirstTokens" in stub.read_text()
    table = (scratch / "docs" / "reference" / "methods.md").read_text()
    assert "| [First](https://arxiv.org/abs/2402.00001) | `first` |" in table
