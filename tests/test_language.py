"""The words of the field, instead of words of our own: a list of patterns that must not occur.

Patterns apply to Markdown outside code and links, and to comments and strings of Python files.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[1]

PATTERNS: Final = (
    r"\bpictures?\b",
    r"(?<!-)\bclips?\b",
    r"\btowers?\b",
    r"\b(decoder|tower) blocks?\b|\bblocks? of the (decoder|tower|vision tower)\b",
    r"\bmeans? over (its )?blocks\b",
    r"\ba share\b|\bshares? of (the|them|its|visual|tokens|1|all)\b",
    r"\b(is|are|was|were|be|nothing) told\b|\btells? apart\b|\btold apart\b|\bthe telling part\b",
    r"\bprompt words?\b|\buser'?s'? (own )?words\b|\bprompt's words\b",
    r"\banew\b|\bkin\b",
    r"\b(goes|go|went) on (with|from|where|at)\b|\bhangs? (on|hooks)\b|\btakes? them off\b",
    r"\bof (yours|ours|one's own|your own)\b",
    r"\b(environments?|process|files?|page|package|names?|loop) of (its|their) own\b",
    r"(?<!there )\b(is|are) no (picture|number|whole number|JSON|model|file|video|words|token)\b",
    r"\b(rightly|wrongly)\b|\bright answers?\b",
    r"\bif need be\b|\b(can|cannot) be had\b|\bof the hub\b|\bwho there is\b",
    r"\b(models?|runs?) as (it is|they are)\b",
    r"\b(equal|prefill|decoder's|fewer|unpruned) operations\b",
    r"\boperations (of the prefill|of K|%)|\bof its operations\b",
    r"\b(beyond|within) doubt\b|\blevel with\b|\bdear(er|est)?\b",
    r"\b(quiet|busy) (machine|cores?)\b|\b(second|another|other|deeper) judges?\b",
    r"\bthe (whole )?house\b|\bhouse's\b|\bfront door\b|\bdoors? of (its|their) own\b",
    r"\brooms\b|\b(a|the|this) room('s)?\b(?! for)",
    r"\bone (file|line|chart|question|panel|point) a (method|line|task|command|budget)\b",
    r"\b(nobody|somebody|whoever|mend(?:s|ed|ing)?)\b",
)
"""What another word says better."""
OF_PEBBLE: Final = PATTERNS[:2]
"""Words in pebble's vocabulary, which its weights depend on; not looked for in its folders."""
FUNCTION: Final = re.compile(r"def _?(find|tell|note|hang|lay|see|be|let|bring|give)_\w+")
"""Prefixes that do not say what a function costs; `find_` is for what may return None."""

FOLDERS: Final = (
    "src",
    "models",
    "research",
    "docs",
    "root",
    "examples",
    "tests",
    "benchmarks",
    "tools",
)
EXCEPTIONS: Final = {
    "src/tokencover/evaluation/judge.py": "the instruction that stored verdicts name",
    "tests/evaluation/test_judging.py": "the instruction that stored verdicts name",
    "tests/evaluation/test_videos.py": "versions of pebble's tasks in stored results",
    "tests/pruning/test_words.py": "Qwen's chat template writes 'Picture 1:'",
    "tests/pruning/tokenizers_for_words.py": "Qwen's chat template writes 'Picture 1:'",
    "tests_vllm/test_by_picture.py": "a question of pebble",
    "tests_vllm/test_pebble.py": "a question of pebble",
    "tests_vllm/test_pebble_reindexed.py": "a question of pebble",
}
SEARCHES: Final = (
    "find_first_copies", "find_first_measured", "find_first_mistake", "find_kept",
    "find_mean_score", "find_pass", "find_quantization", "find_spec",
)  # fmt: skip
"""Searches that may return None."""
NOT_READ: Final = ("CHANGELOG.md", "test_language.py")


def list_files(folder: str) -> list[Path]:
    if folder == "root":
        found = ROOT.glob("*.md")
    elif folder == "tests":
        found = (path for top in ROOT.glob("tests*") for path in top.rglob("*.[mp][dy]"))
    else:
        found = (ROOT / folder).rglob("*.[mp][dy]")
    return sorted(path for path in found if path.name not in NOT_READ)


def read_text(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and text, without code."""
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        is_code = False
        for number, line in enumerate(content.splitlines(), start=1):
            is_code ^= line.lstrip().startswith("```")
            if not is_code:
                yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`[^`]*`", " ", token.string)
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, re.sub(r"`[^`]*`", " ", line)


def list_hits(folder: str) -> list[str]:
    found = []
    for path in list_files(folder):
        is_pebble = "pebble" in path.relative_to(ROOT).parts
        patterns = [each for each in PATTERNS if not (is_pebble and each in OF_PEBBLE)]
        rules = [re.compile(each, 0 if "clip" in each else re.IGNORECASE) for each in patterns]
        found += [
            f"{path.relative_to(ROOT)}:{number}: {hit[0]}"
            for number, line in read_text(path)
            for rule in rules
            for hit in rule.finditer(line)
        ]
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_words_are_those_of_the_field(folder: str) -> None:
    hits = [hit for hit in list_hits(folder) if hit.partition(":")[0] not in EXCEPTIONS]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize("path", EXCEPTIONS)
def test_exceptions_are_needed(path: str) -> None:
    assert any(hit.startswith(f"{path}:") for hit in list_hits(path.partition("/")[0]))


@pytest.mark.parametrize("folder", FOLDERS)
def test_function_prefixes_say_what_they_do(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {hit[0]}"
        for path in list_files(folder)
        if path.suffix == ".py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for hit in FUNCTION.finditer(line)
        if hit[0].split()[1] not in SEARCHES
    ]
    assert not found, "\n".join(found)
