"""Every command in README and docs is one that exists, with options that it takes."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from tests.docs.pages import ROOT, list_commands, read_pages
from tests.docs.shell_lines import LEFT_OUT, LESS, OF_THE_SYSTEM, get_program, get_skip_reason
from tokencover.cli.app import build_app, main

FOREIGN = {
    "accelerate",
    "apt-get",
    "cd",
    "curl",
    "do",
    "done",
    "for",
    "git",
    "mkdir",
    "tar",
    "torchrun",
    "vllm",
}
"""Commands of the system, and words of the shell, which are not checked."""
CHEAP = (["tokencover", "methods"], ["tokencover", "models"])

FOREIGN_OPTIONS = {
    "--enable-dbo",
    "--gpu-memory-utilization",
    "--hf-overrides",
    "--index-url",
    "--trust-request-mm-kwargs",
}
"""Options of vLLM and pip, and one that `serve` reads among those of vLLM."""

COMMANDS = [(name, words) for name, text in read_pages().items() for words in list_commands(text)]


def explain_call(words: list[str]) -> str:
    """What is wrong with a command; empty if nothing is."""
    if words[0] == "torchrun":
        rest = words[words.index("-m") + 1 :] if "-m" in words else []
        return explain_call(rest) if rest[:1] == ["tokencover"] else ""
    program = words[0]
    if program == "tokencover":
        return explain_our_call(words[1:])
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        wanted = [word for word in words[1:] if "=" not in word]
        return "" if set(wanted) <= set(targets) else f"no such target of {targets}"
    if program in ("pip", "python") and {"install", "download"} & set(words):
        return explain_installation(words)
    if program == "python":
        return explain_script(words[1:])
    return "" if program in FOREIGN else f"{program!r} is not a program that docs may use"


def explain_our_call(words: list[str]) -> str:
    """Parse it as the command line would, and run nothing."""
    command: Any = get_command(build_app(drawn=False))
    name = "tokencover"
    while isinstance(command, TyperGroup):
        name, words = words[0], words[1:]
        if name not in command.commands:
            return f"there is no command {name!r}"
        command = command.commands[name]
    try:
        with command.make_context(name, list(words)):
            return ""
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own, which has no public name
            return str(error.format_message())
        raise


def explain_installation(words: list[str]) -> str:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words:
        for wanted in re.findall(r"tokencover\[([\w,]+)\]", word):
            if unknown := set(wanted.split(",")) - set(extras["optional-dependencies"]):
                return f"there are no extras {unknown}"
    return ""


def explain_script(words: list[str]) -> str:
    """The file is there, and knows every option by name."""
    if words[0] == "-m":
        module = find_spec(words[1])
        if module is None or module.origin is None:
            return f"there is no module {words[1]!r}"
        path, words = Path(module.origin), words[2:]
        if path.name == "__init__.py":
            path = path.with_name("__main__.py")
    else:
        path, words = ROOT / words[0], words[1:]
    if not path.is_file():
        return f"there is no file {path}"
    text = path.read_text(encoding="utf-8")
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    missing = [option for option in options if f'"{option}"' not in text]
    return f"{path.name} does not know {missing}" if missing else ""


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 40


def test_commands_exist_and_take_their_options() -> None:
    wrong = [
        f"{page}: {' '.join(words)}\n    {why}"
        for page, words in COMMANDS
        if (why := explain_call(words))
    ]
    assert not wrong, "\n".join(wrong)


def list_options() -> set[str]:
    """All options of all commands."""
    command: Any = get_command(build_app(drawn=False))
    commands = command.commands.values()
    return {name for each in commands for option in each.params for name in option.opts} | {
        "--help",
        "--version",
    }


def test_options_named_in_guides_exist() -> None:
    known = list_options() | FOREIGN_OPTIONS
    wrong = [
        f"{page}: {option}"
        for page, text in read_pages().items()
        if page.startswith(("docs/guide/", "docs/index", "README", "docs/reference/file"))
        for code in re.findall(r"`([^`\n]+)`", text)
        for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", code)
        if option not in known
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "line",
    [
        "tokencover evalute",
        "tokencover ask --no-such-option",
        "tokencover ask --budget",
        "make nothing",
        "python benchmarks/missing.py",
        "python benchmarks/prefill.py --no-such-option",
        "pip install tokencover[nothing]",
        "wget example.org",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert explain_call(line.split())


@pytest.mark.parametrize("words", CHEAP, ids=" ".join)
def test_cheap_commands_run(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert words in [each for _, each in COMMANDS]
    assert main(words[1:]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 8


def test_doc_lines_run_or_have_reason() -> None:
    """A new command of a page is run by `run_pages`, unless it is listed with a reason."""
    unknown = [
        f"{page}: {' '.join(words)}"
        for page, words in COMMANDS
        if not get_skip_reason(words, [])
        and words[0] not in OF_THE_SYSTEM
        and get_program(words) not in LESS
    ]
    assert not unknown
    used = {name for _, words in COMMANDS for name in (words[0], get_program(words), *words)}
    stale = (set(LEFT_OUT) | set(LESS)) - used
    assert not stale
