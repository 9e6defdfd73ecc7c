"""Pages of the documentation that are made from the code: methods, families, the reference.

They are not in the repository. `docs_hook.py` adds them when the documentation is built, and the
tests run their code. Nothing of tokencover is imported: the environment that builds the
documentation has no torch. Docstrings are rendered by mkdocstrings, where a page says ``:::``.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "tokencover"
PEBBLE_FAMILY = "LLaVA-1.5"
"""What pebble is, to methods."""

OBJECTIVES = {
    "both": "the question and the picture",
    "prompt": "the question",
    "visual": "the picture",
    "none": "neither: a control",
}
MAKING = {
    "twigvlm": 'tc.get_method("twigvlm", budget=64, weights="pebble")',
    "final_wipe": "tc.FinalWipe(tc.MoB(budget=64))",
}
"""How methods are made that need more than a budget."""

USE = """\
```python
import tokencover as tc
from tokencover_models.pebble.data import draw_scene, make_scene

model, processor = tc.load("pebble")
inputs = tc.make_inputs(processor, [([draw_scene(make_scene(7))], "which color is most common ?")])

with tc.prune(model, {making}, processor=processor) as run:
    tokens = model.generate(**inputs, max_new_tokens=8, do_sample=False)
run.trace[0].tokens_per_layer  # visual tokens that each decoder block worked on
```
"""
MAKE_ONLY = """\
Pebble is no model for it, see *needs*.

```python
import tokencover as tc

method = {making}
```
"""


def make_pages() -> dict[str, str]:
    """The text of each page, by its path below docs/."""
    catalog = read_catalog()
    pages = {}
    for method in catalog["methods"]:
        pages[f"methods/{name_file(method['name'])}.md"] = make_method_page(method, catalog)
    for family in catalog["families"]:
        pages[f"families/{name_file(family['name'])}.md"] = make_family_page(family, catalog)
    return pages


@cache
def read_catalog() -> dict[str, list[dict[str, Any]]]:
    """Methods, families and refused classes, as `make catalog` wrote them."""
    found: dict[str, list[dict[str, Any]]] = json.loads((PACKAGE / "catalog.json").read_text())
    return found


def name_file(name: str) -> str:
    """A name as part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("+", "-plus")).strip("-")


def make_method_page(method: dict[str, Any], catalog: dict[str, list[dict[str, Any]]]) -> str:
    """What a method is, how it is used, what it cost in the study, and its docstring."""
    making = MAKING.get(method["name"], f'tc.get_method("{method["name"]}", budget=64)')
    use = USE if PEBBLE_FAMILY in method["families"] else MAKE_ONLY
    facts = {
        "name": f"`{method['name']}`, `tc.{method['class_name']}`",
        "paper": _link_paper(method["paper"]),
        "preserves": OBJECTIVES[method["objective"]],
        "pruning_point": method["pruning_point"],
        "signal": method["signal"],
        "needs": ", ".join(method["needs"]) or "nothing more",
        "positions": method["positions"],
        "departs": re.sub(r"\]\((\w+\.md)", r"](../\1", method["departs"]) or "-",
        "runs on": _list_families(method, catalog["families"]),
    }
    return "\n".join(
        [
            f"# {method['title']}\n",
            f"{read_docstring(method['module'])}\n",
            _make_facts(facts),
            f"## Use\n\n{use.format(making=making)}",
            _describe_cost(method["name"]),
            f"## Reference\n\n::: {method['module']}.{method['class_name']}\n",
        ]
    )


def make_family_page(family: dict[str, Any], catalog: dict[str, list[dict[str, Any]]]) -> str:
    """Which classes a family serves, how it is tested, and which methods run on it."""
    module, docstring = find_family_module(family["name"])
    runs = [each for each in catalog["methods"] if family["name"] in each["families"]]
    original = [each for each in runs if family["name"] in each["original_only"]]
    others = [each for each in catalog["methods"] if family["name"] not in each["families"]]
    kin = f", {', '.join(family['kin'])} by the code path of its kin" if family["kin"] else ""
    facts = {
        "classes": ", ".join(f"`{name}`" for name in family["model_types"]),
        "tested": f"by value on tiny instances of the real classes{kin}",
        "positions": "of several axes: kept tokens keep theirs"
        if family["several_axes"]
        else "of one axis",
        "pictures": "a base view and tiles of it" if family["tiles"] else "one view, or crops",
        "vision tower": "its tokens become visual tokens one to one"
        if family["reads_tower"]
        else "not read by methods",
        "source": f"`{module}`",
    }
    parts = [
        f"# {family['name']}\n",
        f"{docstring}\n",
        _make_facts(facts),
        "How a model may be called, and what is refused: [models](../models.md).\n",
        f"## Methods\n\n{len(runs)} of {len(catalog['methods'])} run on it:",
        f"{_link_methods(runs)}.\n",
    ]
    if original:
        parts.append(f'With `positions="original"`: {_link_methods(original)}.\n')
    if others:
        parts.append(f"Not: {_link_methods(others)}; their pages say what they need.\n")
    return "\n".join(parts)


def make_reference() -> str:
    """A section for each room, with the functions and classes that `tokencover` shows."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    methods = {each["class_name"] for each in read_catalog()["methods"]}
    rooms: dict[str, list[str]] = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [alias.name for alias in node.names if alias.name not in methods]
            found = [find_home(node.module, name) for name in names]
            rooms.setdefault(node.module, []).extend(home for home in found if home)
    sections = []
    for room, homes in rooms.items():
        if homes:
            title = room.removeprefix("tokencover.")
            about = read_docstring(room).partition("\n\n")[0]
            sections.append(f"## {title}\n\n{about}\n")
            sections += [f"::: {home}\n" for home in homes]
    return "\n".join(sections)


def find_home(module: str, name: str) -> str | None:
    """Where a function or class is defined, from the imports of rooms; None for other values."""
    for node in parse_module(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return f"{module}.{name}"
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return find_home(node.module or "", name)
    return None


@cache
def parse_module(module: str) -> ast.Module:
    """The source of a module of ours."""
    path = PACKAGE.parent / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def read_docstring(module: str) -> str:
    """What a module says about itself."""
    return ast.get_docstring(parse_module(module)) or ""


def find_family_module(name: str) -> tuple[str, str]:
    """The module that defines a family, and its docstring."""
    for path in sorted((PACKAGE / "families").glob("*.py")):
        module = f"tokencover.families.{path.stem}"
        if name in _find_names(module):
            return module, read_docstring(module)
    raise SystemExit(f"no file of families defines {name!r}")


@cache
def _find_names(module: str) -> frozenset[str]:
    """What calls of a module give as `name`."""
    calls = [node for node in ast.walk(parse_module(module)) if isinstance(node, ast.Call)]
    named = [each.value for call in calls for each in call.keywords if each.arg == "name"]
    return frozenset(
        value.value
        for value in named
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def _make_facts(facts: dict[str, str]) -> str:
    first, *rows = [f"| {key} | {value.replace('|', '&#124;')} |" for key, value in facts.items()]
    return "\n".join([first, "|---|---|", *rows, ""])


def _link_paper(paper: str) -> str:
    if re.fullmatch(r"\d{4}\.\d{4,5}", paper):
        return f"[arXiv {paper}](https://arxiv.org/abs/{paper})"
    return paper or "-"


def _list_families(method: dict[str, Any], families: list[dict[str, Any]]) -> str:
    names = [each["name"] for each in families if each["name"] in method["families"]]
    if len(names) == len(families):
        return f"all {len(families)} [families](../models.md)"
    links = [f"[{name}](../families/{name_file(name)}.md)" for name in names]
    return f"{len(names)} of {len(families)} families: {', '.join(links)}"


def _link_methods(methods: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"[{each['title']}](../methods/{name_file(each['name'])}.md)" for each in methods
    )


def _describe_cost(name: str) -> str:
    """The method's row of the study's first table, if it has one."""
    head, rows = read_study()
    if name not in rows:
        return "## Cost\n\nThe study has no row for it: it needs what pebble does not have.\n"
    return "\n".join(
        [
            "## Cost\n",
            "What is left of pebble's score (576 visual tokens, eleven blocks), in percent, with",
            "as many operations of the prefill as the paper's MoB spends at each K, or as that",
            "many tokens in every block do; from [the study](../study.md), which says what this",
            "cannot show. A dash: it cannot spend as little.\n",
            f"| {' | '.join(head)} |",
            f"|{'---:|' * len(head)}",
            f"| {' | '.join(rows[name])} |",
            "",
        ]
    )


@cache
def read_study() -> tuple[list[str], dict[str, list[str]]]:
    """Costs, and the scores of each method at these, from the study's first table."""
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    table = text.split("## Equal operations of the prefill")[1].split("\n## ")[0]
    lines = table[table.index("| score, % |") :].split("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return head[1:], {name: cells for name, *cells in rows}
