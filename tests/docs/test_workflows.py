"""Workflows and hooks name commands, versions and files that exist."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OTHERS = [
    ROOT / ".pre-commit-config.yaml",
    ROOT / ".github" / "dependabot.yml",
    *sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")),
]


def load_yaml(path: Any) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", [*WORKFLOWS, *OTHERS], ids=lambda path: path.name)
def test_it_is_valid_yaml(path: Any) -> None:
    assert isinstance(load_yaml(path), dict)


def test_workflows_run_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {
        target
        for path in WORKFLOWS
        for target in re.findall(r"\bmake ([\w-]+)", re.sub(r"#.*", "", path.read_text()))
    }
    assert wanted
    assert wanted <= targets


def test_each_target_of_run_has_job() -> None:
    """`.ci/run` is what the jobs are, in sequence."""
    everything = (ROOT / ".ci" / "run").read_text()
    lines = [line for line in everything.splitlines() if line.startswith("make ")]
    targets = {
        word for line in lines for word in line.split()[1:] if re.fullmatch(r"[a-z-]+", word)
    }
    jobs = "".join(path.read_text() for path in WORKFLOWS)
    assert {target for target in targets if f"make {target}" not in jobs} == set()


def test_python_versions_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    supported = [
        match[1] for line in project["classifiers"] if (match := re.search(r":: (3\.\d+)$", line))
    ]
    workflow = load_yaml(ROOT / ".github" / "workflows" / "ci.yml")
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == supported


def test_hook_ruff_version_equals_lint_version() -> None:
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned
    hooks = load_yaml(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert [hook["additional_dependencies"] for hook in hooks] == [[f"ruff=={pinned[1]}"]] * 2
    assert all(hook["language"] == "python" for hook in hooks)
