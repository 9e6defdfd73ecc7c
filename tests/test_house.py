"""The house stays as it is laid out: names that mean one thing, doors, sizes, plain English.

import-linter holds the direction of imports (pyproject.toml); what it cannot see is here. Every
test lists all offenders, so that one run is enough to put them right.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tokencover"

LINES_OF_MODULE = 400
LINES_OF_FUNCTION = 65
"""With its docstring: no function that must be scrolled."""

SHARED_BASENAMES = {"mob": {"covering/mob.py", "methods/mob.py"}}
"""Modules that share a basename because they are about the same thing: here Algorithm 1, and the
method that runs it."""

FACES = {
    "boulder.model",
    "pebble.data",
    "pebble.model",
    "pebble.training",
    "evaluation.lmms",
    "evaluation.report",
}
"""Rooms within rooms that have a door of their own."""
LISTED_BY_MODULE = {"commands"}
"""Rooms that are a list of modules: the command line imports each of them when it needs it."""

AVOIDED_WORDS = re.compile(r"\b(nobody|somebody|whoever|mend(?:s|ed|ing)?)\b", re.IGNORECASE)

NAMED_BY_PARTICIPLE = re.compile(r"(\w*?(?:ed|ing))(?:_|$)")
VERBS = {"bring", "embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "spread"}
"""Verbs that only look like participles."""
IRREGULAR_PARTICIPLES = {
    "begun", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "given", "gone",
    "grown", "held", "hidden", "kept", "known", "laid", "left", "lost", "made", "meant", "met",
    "seen", "sent", "shown", "spoken", "taken", "thrown", "told", "written",
}  # fmt: skip
KNOWN_TO_USERS = {
    *("coupling", "directed_hausdorff", "projected_coupling", "sampled_coupling"),  # quantities
    *("watched", "left"),  # what people who write methods override and call
}
"""Documented names, which stay."""


@cache
def sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def spot(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def fail_on(offenders: list[str], rule: str) -> None:
    assert not offenders, "\n".join([f"{rule}:", *offenders])


def test_every_module_has_a_name_of_its_own() -> None:
    by_name = defaultdict(set)
    for path in sources():
        if path.stem not in ("__init__", "__main__"):
            by_name[path.stem].add(path.relative_to(SOURCE).as_posix())
    offenders = [
        f"{name}: {', '.join(sorted(paths))}"
        for name, paths in sorted(by_name.items())
        if len(paths) > 1 and paths != SHARED_BASENAMES.get(name)
    ]
    fail_on(offenders, "these basenames stand for several modules")


def test_every_class_has_a_name_of_its_own() -> None:
    by_name = defaultdict(list)
    for path in sources():
        for node in parse(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name[node.name].append(spot(path, node.lineno))
    offenders = [f"{name}: {', '.join(at)}" for name, at in sorted(by_name.items()) if len(at) > 1]
    fail_on(offenders, "these names stand for several classes")


def test_rooms_are_entered_by_their_door() -> None:
    offenders = [
        f"{spot(path, line)} imports {module}"
        for path in [*sources(), *sorted((ROOT / "benchmarks").glob("*.py"))]
        for line, module in imported_modules(path)
        if is_past_a_door(module, path)
    ]
    fail_on(offenders, "import these from the room's __init__")


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name below `tokencover` of every module of ours that a file imports."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{spot(path, node.lineno)} imports relatively"
            module = node.module or ""
            names = [module]
            names += [f"{module}.{a.name}" for a in node.names if is_bare_module(module, a.name)]
        else:
            continue
        for name in names:
            if name.startswith("tokencover."):
                yield node.lineno, name.removeprefix("tokencover.")


def is_bare_module(package: str, name: str) -> bool:
    """Whether ``from package import name`` gives a module, and not something of the same name."""
    folder = ROOT / "src" / package.replace(".", "/")
    if not ((folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()):
        return False
    return name not in names_at_the_door(folder / "__init__.py")


@cache
def names_at_the_door(path: Path) -> set[str]:
    imports = [node for node in parse(path).body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def is_past_a_door(module: str, importer: Path) -> bool:
    room, _, inside = module.partition(".")
    if not inside or module in FACES or room in LISTED_BY_MODULE:
        return False
    return not importer.is_relative_to(SOURCE / room)


def test_modules_and_functions_can_be_read_at_once() -> None:
    offenders = []
    for path in sources():
        length = len(path.read_text(encoding="utf-8").splitlines())
        if length > LINES_OF_MODULE:
            offenders.append(f"{spot(path, 1)} has {length} lines")
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > LINES_OF_FUNCTION:
                    offenders.append(f"{spot(path, node.lineno)} {node.name} has {length} lines")
    fail_on(
        offenders,
        f"more than {LINES_OF_MODULE} lines of a module, {LINES_OF_FUNCTION} of a function",
    )


def test_the_english_is_plain() -> None:
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    benchmarks = sorted((ROOT / "benchmarks").glob("*.py"))
    offenders = [
        f"{spot(path, number)} {found[0]}"
        for path in [*sources(), *benchmarks, *pages]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for found in [AVOIDED_WORDS.search(line)]
        if found
    ]
    fail_on(offenders, "say these in other words")


def test_functions_are_verbs() -> None:
    offenders = [
        f"{spot(path, node.lineno)} {node.name}"
        for path in sources()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef) and not is_property(node)
        if is_named_by_participle(node.name) and node.name not in KNOWN_TO_USERS
    ]
    fail_on(offenders, "these functions are named by a participle: name them by a verb")


def is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in node.decorator_list)


def is_named_by_participle(name: str) -> bool:
    first = name.lstrip("_").partition("_")[0]
    found = NAMED_BY_PARTICIPLE.match(first)
    return first in IRREGULAR_PARTICIPLES or (found is not None and found[1] not in VERBS)
