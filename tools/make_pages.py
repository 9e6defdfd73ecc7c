"""Pages of the documentation that are made from the code: methods, families, the reference.

They are not in the repository. `docs_hook.py` adds them when the documentation is built, and the
tests run their code. tokencover is not imported: the environment that builds the documentation
has no torch. mkdocstrings renders docstrings where a page has ``:::``.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "tokencover"
MODELS = ROOT / "models" / "src"
"""Sources of the second distribution, with the test models."""
FIRST = "tokencover.pruning"
"""The subpackage that the API page begins with."""
PEBBLE_FAMILY = "LLaVA-1.5"
"""The family that pebble belongs to."""

OBJECTIVES = {
    "both": "prompt and image",
    "prompt": "the prompt",
    "visual": "the image",
    "none": "neither: a control",
}
EXAMPLES = {
    "twigvlm": 'tc.get_method("twigvlm", budget=64, weights="pebble")',
    "final_wipe": "tc.FinalWipe(tc.MoB(budget=64))",
}
"""Calls for methods that need more than a budget."""

PEBBLE_EXAMPLE = """\
```python
import tokencover as tc
from tokencover_models.pebble.data import draw_scene, make_scene

model, processor = tc.load("pebble")
inputs = tc.make_inputs(processor, [([draw_scene(make_scene(7))], "which color is most common ?")])

with tc.prune(model, {call}, processor=processor) as run:
    tokens = model.generate(**inputs, max_new_tokens=8, do_sample=False)
run.trace[0].tokens_per_layer  # visual tokens processed by each decoder layer
```
"""
OTHER_EXAMPLE = """\
It does not run on pebble, see *needs*.

```python
import tokencover as tc

method = {call}
```
"""


def make_pages() -> dict[str, str]:
    """The text of each page, by its path below docs/."""
    catalog = read_catalog()
    pages = {}
    for method in catalog["methods"]:
        path = f"reference/methods/{name_file(method['name'])}.md"
        pages[path] = make_method_page(method, catalog)
    for family in catalog["families"]:
        path = f"reference/families/{name_file(family['name'])}.md"
        pages[path] = make_family_page(family, catalog)
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
    """Describe a method: facts, use, results of the study, docstring."""
    call = EXAMPLES.get(method["name"], f'tc.get_method("{method["name"]}", budget=64)')
    example = PEBBLE_EXAMPLE if PEBBLE_FAMILY in method["families"] else OTHER_EXAMPLE
    facts = {
        "name": f"`{method['name']}`, `tc.{method['class_name']}`",
        "paper": _link_paper(method["paper"]),
        "preserves": OBJECTIVES[method["objective"]],
        "prunes": method["pruning_point"],
        "signal": method["signal"],
        "needs": ", ".join(method["needs"]) or "-",
        "positions": method["positions"],
        "differs from released code": re.sub(r"\]\((\w+\.md)", r"](../\1", method["departs"])
        or "-",
        "runs on": _list_families(method, catalog["families"]),
    }
    return "\n".join(
        [
            f"# {method['title']}\n",
            f"{read_docstring(method['module'])}\n",
            _make_facts(facts),
            f"## Use\n\n{example.format(call=call)}",
            _describe_results(method["name"]),
            f"## Reference\n\n::: {method['module']}.{method['class_name']}\n",
        ]
    )


def make_family_page(family: dict[str, Any], catalog: dict[str, list[dict[str, Any]]]) -> str:
    """Describe a family: its classes, how it is tested, and the methods that support it."""
    docstring = read_family_docstring(family["name"])
    supported = [entry for entry in catalog["methods"] if family["name"] in entry["families"]]
    original = [entry for entry in supported if family["name"] in entry["original_only"]]
    unsupported = [entry for entry in catalog["methods"] if family["name"] not in entry["families"]]
    variants = ", ".join(family["variants"])
    facts = {
        "classes": ", ".join(f"`{name}`" for name in family["model_types"]),
        "tested": "numerically, on tiny random instances of the real classes"
        + (f"; {variants} through the same code" if variants else ""),
        "position IDs": "multi-axis (M-RoPE): kept tokens keep theirs"
        if family["several_axes"]
        else "one axis",
        "image views": "a base view and its tiles" if family["tiles"] else "one view, or tiles",
        "vision encoder": "each of its tokens becomes one visual token"
        if family["reads_tower"]
        else "not read by methods",
    }
    parts = [
        f"# {family['name']}\n",
        f"{docstring}\n",
        _make_facts(facts),
        "Ways to call a model: [models](../../guide/models.md).\n",
        f"## Methods\n\n{len(supported)} of {len(catalog['methods'])} support it:",
        f"{_link_methods(supported)}.\n",
    ]
    if original:
        parts.append(f'Only with `positions="original"`: {_link_methods(original)}.\n')
    if unsupported:
        parts.append(
            f"Not supported by {_link_methods(unsupported)}; see *needs* on their pages.\n"
        )
    return "\n".join(parts)


def make_reference() -> str:
    """List the public functions and classes by subpackage, with `prune` first."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    methods = {entry["class_name"] for entry in read_catalog()["methods"]}
    sections: dict[str, list[str]] = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [alias.name for alias in node.names if alias.name not in methods]
            found = [locate_definition(node.module, name) for name in names]
            sections.setdefault(node.module, []).extend(path for path in found if path)
    lines = []
    for package in sorted(sections, key=lambda name: (name != FIRST, name)):
        if paths := sections[package]:
            title = package.removeprefix("tokencover.")
            summary = read_docstring(package).partition("\n\n")[0]
            lines.append(f"## {title}\n\n{summary}\n")
            paths.sort(key=lambda path: not path.endswith(".prune"))
            lines += [f"::: {path}\n" for path in paths]
    return "\n".join(lines)


def locate_definition(module: str, name: str) -> str | None:
    """The dotted path of a function or class, found through imports; None for other values."""
    for node in parse_module(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return f"{module}.{name}"
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return locate_definition(node.module or "", name)
    return None


@cache
def parse_module(module: str) -> ast.Module:
    """Parse the source of a module of tokencover or of the test models."""
    root = MODELS if module.startswith("tokencover_models") else PACKAGE.parent
    path = root / module.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def read_docstring(module: str) -> str:
    """The docstring of a module."""
    return ast.get_docstring(parse_module(module)) or ""


def read_family_docstring(name: str) -> str:
    """The docstring below the definition of a family."""
    for path in sorted((PACKAGE / "families").glob("*.py")):
        for node, after in pairwise(parse_module(f"tokencover.families.{path.stem}").body):
            if isinstance(node, ast.Assign) and _get_name(node.value) == name:
                docstring = after.value if isinstance(after, ast.Expr) else None
                if isinstance(docstring, ast.Constant):
                    return inspect.cleandoc(str(docstring.value))
    raise SystemExit(f"no file of families defines and describes {name!r}")


def _get_name(call: ast.expr) -> str | None:
    """The value of `name=` in a call, None if it has none."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    values = [keyword.value for keyword in keywords if keyword.arg == "name"]
    return next((str(value.value) for value in values if isinstance(value, ast.Constant)), None)


def _make_facts(facts: dict[str, str]) -> str:
    first, *rows = [f"| {key} | {value.replace('|', '&#124;')} |" for key, value in facts.items()]
    return "\n".join([first, "|---|---|", *rows, ""])


def _link_paper(paper: str) -> str:
    if re.fullmatch(r"\d{4}\.\d{4,5}", paper):
        return f"[arXiv {paper}](https://arxiv.org/abs/{paper})"
    return paper or "-"


def _list_families(method: dict[str, Any], families: list[dict[str, Any]]) -> str:
    names = [entry["name"] for entry in families if entry["name"] in method["families"]]
    if len(names) == len(families):
        return f"all {len(families)} [families](../families.md)"
    links = [f"[{name}](../families/{name_file(name)}.md)" for name in names]
    return f"{len(names)} of {len(families)} families: {', '.join(links)}"


def _link_methods(methods: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"[{entry['title']}](../methods/{name_file(entry['name'])}.md)" for entry in methods
    )


def _describe_results(name: str) -> str:
    """The method's row of the study's first table, if it has one."""
    head, rows = read_study()
    if name not in rows:
        return "## Results\n\nNot part of the study: it needs what pebble does not have.\n"
    return "\n".join(
        [
            "## Results\n",
            "Score on pebble (576 visual tokens, 11 decoder layers) in percent of the unpruned",
            "model, at the prefill FLOPs of the paper's MoB with K tokens, or of that many tokens",
            "in every layer. A dash: the method cannot run at this cost. Limits of these numbers:",
            "[the study](../../research/study.md).\n",
            f"| {' | '.join(head)} |",
            f"|{'---:|' * len(head)}",
            f"| {' | '.join(rows[name])} |",
            "",
        ]
    )


@cache
def read_study() -> tuple[list[str], dict[str, list[str]]]:
    """Costs, and the scores of each method, from the study's first table."""
    text = (ROOT / "docs" / "research" / "study.md").read_text(encoding="utf-8")
    table = text.split("## Equal prefill FLOPs")[1].split("\n## ")[0]
    lines = table[table.index("| score, % |") :].split("\n\n")[0].splitlines()
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return head[1:], {name: cells for name, *cells in rows}
