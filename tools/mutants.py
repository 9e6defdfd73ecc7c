"""Check the tests: change the library at random places and list the changes that no test notices.

Every mutant changes one expression of `src/` (a comparison, operator, number, condition,
conversion or exception) in a copy, and runs the tests of its package until one fails. A mutant that
survives means a missing test, or a change that does not matter: read its diff to decide::

    make mutants                                         # 20 mutants, seed 0
    python tools/mutants.py --seed 3 --count 40 --only covering methods

The same seed draws the same mutants of the same source.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src") / "tokencover"
TESTS = {
    "families": ["tests/pruning", "tests/zoo"],
    "pruning": ["tests/pruning", "tests/methods/test_matrix.py"],
    "covering": ["tests/covering"],
}
"""Tests of a package that are not just those of the same name."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
DROPPED_CALLS = {"float", "double", "long", "clone", "detach", "contiguous", "abs", "clear"}
"""Methods without arguments whose call is left out: ``x.float()`` becomes ``x``."""


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two positions of a file is replaced."""

    path: Path
    start: tuple[int, int]
    end: tuple[int, int]
    before: str
    after: str

    def apply(self, source: str) -> str:
        """The source with the change; columns count bytes, as in ``ast``."""
        lines = source.encode().splitlines(keepends=True)
        first, last = self.start[0] - 1, self.end[0] - 1
        head = b"".join(lines[:first]) + lines[first][: self.start[1]]
        tail = lines[last][self.end[1] :] + b"".join(lines[last + 1 :])
        return (head + self.after.encode() + tail).decode()

    def __str__(self) -> str:
        return f"{self.path}:{self.start[0]}\n    - {self.before}\n    + {self.after}"


def mutate(node: ast.AST) -> Iterator[ast.AST]:
    """Yield changed copies of a node."""
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            changed.ops = [COMPARISONS[type(op)]()]
            yield changed
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            changed.op = OPERATORS[type(op)]()
            yield changed
        case ast.BoolOp(op=op):
            changed.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield changed
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.IfExp(test=test):
            changed.test = ast.UnaryOp(ast.Not(), test)
            yield changed
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Attribute(attr=name, value=value), args=[], keywords=[]) if (
            name in DROPPED_CALLS
        ):
            yield value
        case ast.Raise():
            yield ast.Pass()


def list_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over the code of functions: no annotations, defaults of fields, or representations."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            if child.name not in ("__repr__", "_repr_html_", "__str__"):
                for statement in child.body:
                    yield statement
                    yield from list_nodes(statement)
        elif isinstance(child, ast.AnnAssign):
            if child.value is not None and not isinstance(node, ast.Module | ast.ClassDef):
                yield child.value
                yield from list_nodes(child.value)
        elif isinstance(child, ast.ClassDef):
            yield from list_nodes(child)
        elif not isinstance(node, ast.Module | ast.ClassDef):
            yield child
            yield from list_nodes(child)


def list_mutants(only: list[str]) -> list[Mutant]:
    """All mutants of the packages, or of all."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        if only and get_package(path.relative_to(ROOT)) not in only:
            continue
        source = path.read_text(encoding="utf-8")
        for node in list_nodes(ast.parse(source)):
            before = ast.get_source_segment(source, node)
            if before is None or not isinstance(node, ast.expr | ast.Raise):
                continue
            start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset)
            for changed in mutate(node):
                after = ast.unparse(changed)
                # Brackets keep the precedence; a statement takes none.
                after = after if isinstance(node, ast.Raise) else f"({after})"
                mutant = Mutant(path.relative_to(ROOT), start, (end[0], end[1] or 0), before, after)
                found.append(mutant)
    return found


def get_package(path: Path) -> str:
    """The package or top-level module that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def list_tests(package: str) -> list[str]:
    """Tests of a package, or of a module at the top level."""
    if package in TESTS:
        return TESTS[package]
    found = [path for path in (f"tests/{package}", f"tests/test_{package}.py") if exists(path)]
    return found or ["tests/test_package.py"]


def exists(path: str) -> bool:
    """Whether the repository has this file."""
    return (ROOT / path).exists()


def run_tests(source: Path, tests: list[str], seconds: float) -> bool | None:
    """Whether all tests pass; None if they take too long."""
    where = os.pathsep.join([str(source), str(ROOT / "models" / "src"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    run = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": where},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return run.wait(timeout=seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, 9)
        run.wait()
        return None


def main() -> int:
    """Draw mutants, run their tests, and list the survivors."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="number of mutants (default: 20)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PACKAGE", help="default: all")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    options = parser.parse_args()
    mutants = list_mutants(options.only)
    if not mutants:
        parser.error(f"--only {' '.join(options.only)}: no code there; see {PACKAGE}.")
    drawn = random.Random(options.seed).sample(mutants, min(options.count, len(mutants)))
    print(f"{len(drawn)} of {len(mutants)} mutants, seed {options.seed}", flush=True)
    if options.list:
        print(*drawn, sep="\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))
        survivors = try_mutants(drawn, source)
    killed = len(drawn) - len(survivors)
    print(f"{killed} of {len(drawn)} noticed ({killed / len(drawn):.0%})")
    return 1 if survivors else 0


def try_mutants(drawn: list[Mutant], source: Path) -> list[Mutant]:
    """Run the tests of each mutant; raise if tests fail on the unchanged source."""
    limits: dict[str, float] = {}
    survivors = []
    for number, mutant in enumerate(drawn, start=1):
        package = get_package(mutant.path)
        tests = list_tests(package)
        if package not in limits:
            began = time.monotonic()
            if not run_tests(source, tests, 3600):
                raise SystemExit(f"{' '.join(tests)} fail without a mutant: repair them first.")
            limits[package] = 3 * (time.monotonic() - began) + 60
        file = source / mutant.path.relative_to("src")
        original = file.read_text(encoding="utf-8")
        file.write_text(mutant.apply(original), encoding="utf-8")
        passed = run_tests(source, tests, limits[package])
        file.write_text(original, encoding="utf-8")
        verdict = {True: "SURVIVED", False: "noticed", None: "noticed (no end)"}[passed]
        print(f"{number:3} {verdict}: {mutant}", flush=True)
        survivors += [mutant] if passed else []
    return survivors


if __name__ == "__main__":
    raise SystemExit(main())
