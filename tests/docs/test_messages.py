"""Pages and messages refer to each other correctly."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.pages import ROOT

FOLDERS = ("src", "models/src", "research", "benchmarks", "tools")
PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")


def test_pages_named_in_code_exist() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {page}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for page in PAGE.findall(path.read_text(encoding="utf-8"))
        if not (ROOT / page).exists()
    ]
    assert not wrong, "\n".join(wrong)


@cache
def read_messages() -> str:
    """All strings of the library with their placeholders as `...`, one per line."""
    texts = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "..." for part in node.values
                ]
                texts.append("".join(str(part) for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def list_quoted_symptoms() -> list[str]:
    """What the first column of the troubleshooting page quotes from messages."""
    page = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`|\"([^\"]+)\"", cell)]
    return ["".join(each) for each in quoted]


def test_troubleshooting_quotes_messages_of_the_library() -> None:
    symptoms = list_quoted_symptoms()
    assert len(symptoms) > 10
    missing = [
        symptom
        for symptom in symptoms
        if not all(part.strip(" ().") in read_messages() for part in symptom.split("..."))
    ]
    assert not missing, "\n".join(missing)
