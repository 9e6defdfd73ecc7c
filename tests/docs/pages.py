"""What the pages of README, docs and CONTRIBUTING hold: blocks of code, commands, links."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from make_pages import make_pages

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/tokencover/tokencover"
RAW = "https://raw.githubusercontent.com/tokencover/tokencover/main"

SHELLS = ("sh", "bash", "console", "shell")
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code: its language, its text without indentation, and the line it begins at."""

    language: str
    text: str
    line: int


def list_blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    blocks = []
    for found in FENCE.finditer(text):
        indent, _, language, body = found.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        begin = text.count("\n", 0, found.start()) + 2
        blocks.append(Block(language, "\n".join(lines), begin))
    return blocks


@cache
def read_pages() -> dict[str, str]:
    """Every page that people read, by name: those of the repository, and those that are made."""
    written = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "src" / "tokencover").rglob("README.md")),
    ]
    pages = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in written}
    made = {f"docs/{name}": text for name, text in make_pages().items()}
    return {**pages, **made}


def list_commands(text: str) -> list[list[str]]:
    """The commands of all shell blocks of a page, a list of words each."""
    shells = [block for block in list_blocks(text) if block.language in SHELLS]
    return [words for block in shells for words in split_commands(block.text)]


def split_commands(text: str) -> list[list[str]]:
    """The commands of one shell block; what && joins is several."""
    found, pending = [], ""
    for line in text.replace("\\\n", " ").splitlines():
        pending += f"{line}\n"
        if is_closed(pending):
            words = shlex.split(pending, comments=True)
            while "&&" in words:
                place = words.index("&&")
                found.append(words[:place])
                words = words[place + 1 :]
            found.append(words)
            pending = ""
    assert not pending, f"a quotation is not closed: {pending}"
    return [words for words in found if words]


def is_closed(command: str) -> bool:
    """Whether no quotation goes on in the next line."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True
