"""Write what is said about methods and families from the classes themselves: `make catalog`.

Five files: ``catalog.json``, from which commands list methods without importing torch; the stubs of
``tokencover`` and ``tokencover.methods``, which show type checkers and editors the names that are
looked up when they are used; the tables of ``docs/reference/methods.md`` and ``families.md``.

    python tools/write_catalog.py            write what has changed
    python tools/write_catalog.py --check    write nothing; fail if something has
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from itertools import groupby
from pathlib import Path

import tokencover
import tokencover.methods
from tokencover import catalog
from tokencover.catalog import FamilyEntry, MethodEntry, RefusedEntry

ROOT = Path(__file__).parent.parent
PACKAGE = Path(tokencover.__file__).parent
METHODS_PAGE = ROOT / "docs" / "reference" / "methods.md"
MODELS_PAGE = ROOT / "docs" / "reference" / "families.md"
NOTE = "# Written by `make catalog` from the classes themselves; not to be edited.\n# ruff: noqa\n"
ARXIV = re.compile(r"\d{4}\.\d{4,5}")


def main() -> int:
    """Write the files, or say which are stale; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    check = parser.parse_args().check
    if any(entry_points(group=group) for group in catalog.GROUPS):
        print("other packages add methods or families here: uninstall them first", file=sys.stderr)
        return 1
    stale = [path for path, text in make_files().items() if _read(path) != text]
    if check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make catalog`", file=sys.stderr)
        return int(bool(stale))
    for path, text in make_files().items():
        if path in stale:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    return 0


def make_files() -> dict[Path, str]:
    """The text of each file."""
    methods, families = catalog.describe_methods(), catalog.describe_families()
    refused = catalog.describe_refused()
    tables = {"methods": _list_methods(methods), "departures": _list_departures(methods)}
    lists = {"families": _list_families(families), "refused": _list_refused(refused)}
    return {
        catalog.FILE: make_catalog(methods, families, refused),
        PACKAGE / "__init__.pyi": make_front_stub(methods),
        PACKAGE / "methods" / "__init__.pyi": make_methods_stub(methods),
        METHODS_PAGE: fill_in_tables(METHODS_PAGE, tables),
        MODELS_PAGE: fill_in_tables(MODELS_PAGE, lists),
    }


def make_catalog(
    methods: list[MethodEntry], families: list[FamilyEntry], refused: list[RefusedEntry]
) -> str:
    """One line an entry, so that a change shows what has changed."""
    parts = []
    for name, entries in (("methods", methods), ("families", families), ("refused", refused)):
        lines = [f"  {json.dumps(asdict(each), ensure_ascii=False)}" for each in entries]
        parts.append(f' "{name}": [\n' + ",\n".join(lines) + "\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def make_front_stub(methods: list[MethodEntry]) -> str:
    """The names of `tokencover`, where they really come from."""
    names = [
        (name, package) for package, names in vars(tokencover)["_EXPORTS"].items() for name in names
    ]
    names += [(each.class_name, "methods") for each in methods]
    homes = {name: f"tokencover.{package}" for name, package in names}
    homes |= dict.fromkeys(vars(tokencover)["_TEST_MODELS"], "tokencover_models")
    return _make_stub(homes, "__version__: str\n")


def make_methods_stub(methods: list[MethodEntry]) -> str:
    """The names of `tokencover.methods`: what its file imports, and the classes of methods."""
    source = Path(tokencover.methods.__file__).read_text(encoding="utf-8")
    homes = {
        alias.name: node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    return _make_stub(homes | {each.class_name: each.module for each in methods})


def _make_stub(homes: dict[str, str], more: str = "") -> str:
    ordered = sorted(homes.items(), key=lambda pair: (pair[1], pair[0]))
    lines = [
        f"from {home} import {name} as {name}\n"
        for home, pairs in groupby(ordered, key=lambda pair: pair[1])
        for name, _ in pairs
    ]
    return f"{NOTE}\n{''.join(lines)}\n{more}__all__: list[str]\n"


def fill_in_tables(page: Path, tables: dict[str, str]) -> str:
    """The page with its tables written again, between their markers."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        begin, end = f"<!-- {name}: written by `make catalog` -->", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{page} has lost its markers {begin!r} and {end!r}")
        before, rest = text.split(begin, 1)
        text = f"{before}{begin}\n{table}{end}{rest.split(end, 1)[1]}"
    return text


def _list_methods(methods: list[MethodEntry]) -> str:
    rows = [
        (
            _link(each),
            f"`{each.name}`",
            each.pruning_point,
            each.signal,
            ", ".join(each.needs) or "-",
            each.positions,
        )
        for each in methods
    ]
    return _make_table(("method", "name", "prunes", "signal", "needs", "positions"), rows)


def _list_departures(methods: list[MethodEntry]) -> str:
    rows = [(each.title, each.departs) for each in methods if each.departs]
    return _make_table(("method", "departure"), rows)


def _list_families(families: list[FamilyEntry]) -> str:
    rows = [
        (each.name, ", ".join(f"`{name}`" for name in each.model_types), each.in_tower, each.tested)
        for each in families
    ]
    return _make_table(
        ("family", "classes (`model_type`)", "in the vision encoder", "tested"), rows
    )


def _list_refused(refused: list[RefusedEntry]) -> str:
    rows = [(f"`{each.model_type}`", each.reason) for each in refused]
    return _make_table(("class (`model_type`)", "reason"), rows)


def _link(entry: MethodEntry) -> str:
    """The title, with a link to a preprint."""
    if ARXIV.fullmatch(entry.paper):
        return f"[{entry.title}](https://arxiv.org/abs/{entry.paper})"
    return entry.title


def _make_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
