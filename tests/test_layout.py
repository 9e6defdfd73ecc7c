"""Modules that can be read at once, and names that mean one thing in their package.

import-linter checks the direction of imports (pyproject.toml). Every test lists all offenders, so
one run is enough to fix them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tokencover"

LINES_OF_MODULE = 450
LINES_OF_FUNCTION = 65
"""With its docstring: no function that must be scrolled."""


@cache
def list_sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def locate(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def get_package(path: Path) -> str:
    """The package below ``tokencover`` that a module belongs to, "" for the top level."""
    return next(iter(path.relative_to(SOURCE).parent.parts), "")


def assert_none(offenders: list[str], rule: str) -> None:
    assert not offenders, "\n".join([f"{rule}:", *offenders])


def test_module_names_are_unique_within_a_package() -> None:
    by_name = defaultdict(list)
    for path in list_sources():
        if path.stem not in ("__init__", "__main__"):
            by_name[get_package(path), path.stem].append(locate(path, 1))
    offenders = [", ".join(places) for places in by_name.values() if len(places) > 1]
    assert_none(offenders, "these modules of one package have one name")


def test_class_names_are_unique_within_a_package() -> None:
    by_name = defaultdict(list)
    for path in list_sources():
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name[get_package(path), node.name].append(locate(path, node.lineno))
    offenders = [f"{name}: {', '.join(at)}" for (_, name), at in sorted(by_name.items()) if at[1:]]
    assert_none(offenders, "these names stand for several classes of one package")


def test_modules_and_functions_can_be_read_at_once() -> None:
    offenders = []
    for path in list_sources():
        length = len(path.read_text(encoding="utf-8").splitlines())
        if length > LINES_OF_MODULE:
            offenders.append(f"{locate(path, 1)} has {length} lines")
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > LINES_OF_FUNCTION:
                    offenders.append(f"{locate(path, node.lineno)} {node.name} has {length} lines")
    assert_none(
        offenders,
        f"more than {LINES_OF_MODULE} lines of a module, {LINES_OF_FUNCTION} of a function",
    )


def test_imports_are_absolute() -> None:
    offenders = [
        locate(path, node.lineno)
        for path in list_sources()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert_none(offenders, "these imports are relative")
