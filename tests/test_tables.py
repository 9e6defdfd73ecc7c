"""Tables, plain and drawn."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest

from tokencover.tables import TextTable, align_columns, print_markdown, print_table, print_text

HEADER = ("method", "faster", "kept")
ROWS = [("mob", "2.31x", "64"), ("unpruned\nas it is", "-", "576")]
MARKDOWN = """# Title

| method | budget | a \\| b\\_c |
| --- | --- | ---: |
| mob | 64 | no |
| unpruned | - | 100.0 |

Words [in brackets] that say what the columns mean."""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> Terminal:
    """To be called within a test: pytest gives every phase a standard output of its own."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return screen


def lines_of(screen: Terminal) -> list[str]:
    """What is read; bold and dim are no colours, NO_COLOR leaves them."""
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]


def test_numbers_stand_to_the_right_and_remarks_below() -> None:
    assert align_columns(HEADER, ROWS).splitlines() == [
        "method    faster  kept",
        "mob        2.31x    64",
        "unpruned       -   576",
        "  as it is",
    ]
    assert align_columns(HEADER, ROWS[:1], words=3).splitlines()[1] == "mob     2.31x   64"


def test_lines_stand_above_and_below() -> None:
    table = TextTable(("a", "b"), [("1", "2")], above="first", notes=("one", "two"))
    assert str(table) == "first\n\na  b\n1  2\n\none\ntwo"


def test_a_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TextTable(HEADER, ROWS))
    print_markdown(MARKDOWN)
    assert capsys.readouterr().out == f"{align_columns(HEADER, ROWS)}\n{MARKDOWN}\n"


def test_a_terminal_gets_a_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_table(TextTable(HEADER, ROWS))
    header, line, *rows = lines_of(terminal)
    assert header.split() == ["method", "faster", "kept"]
    assert set(line) == {"─"}
    assert [row.split() for row in rows] == [
        ["mob", "2.31x", "64"],
        ["unpruned", "-", "576"],
        ["as", "it", "is"],
    ]


def test_colors_are_left_out_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_table(TextTable(HEADER, ROWS))
    assert "\x1b[36m" not in terminal.getvalue()
    monkeypatch.delenv("NO_COLOR")
    print_table(TextTable(HEADER, ROWS))
    assert "\x1b[36m" in terminal.getvalue()


def test_a_table_that_is_too_wide_is_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, width=40)
    print_table(
        TextTable(["method", *(f"column {each}" for each in range(5))], [["mob", *"12345"]])
    )
    header, _, *rows = lines_of(terminal)
    assert header.split() == ["method", "mob"]
    assert rows[1].split() == ["column", "1", "2"]


def test_a_table_that_is_too_wide_either_way_is_drawn_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = open_terminal(monkeypatch, width=40)
    numbers = [f"{each}.000000" for each in range(5)]
    rows = [["a long name", str(budget), *numbers] for budget in range(8)]
    print_table(TextTable(["method", "budget", *(f"column {each}" for each in range(5))], rows))
    lines = lines_of(terminal)
    parts = [lines[start : start + 10] for start in range(0, len(lines), 11)]
    assert [part[0].split() for part in parts] == [
        ["method", "budget", "column", "0", "column", "1"],
        ["method", "budget", "column", "2", "column", "3"],
        ["method", "budget", "column", "4"],
    ]
    for part, columns in zip(parts, (numbers[:2], numbers[2:4], numbers[4:]), strict=True):
        assert [line.split() for line in part[2:]] == [
            ["a", "long", "name", str(budget), *columns] for budget in range(8)
        ]


def test_long_lines_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, width=12)
    print_text("  some words\nthat [bold] are long")
    assert lines_of(terminal) == ["  some words", "that [bold]", "are long"]


def test_markdown_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_markdown(MARKDOWN)
    title, _, header, _, first, second, _, words = lines_of(terminal)
    assert title == "Title"
    assert header.split() == ["method", "budget", "a", "|", "b_c"]
    assert first.split() == ["mob", "64", "no"]
    assert second.split() == ["unpruned", "-", "100.0"]
    assert words == "Words [in brackets] that say what the columns mean."


def test_rich_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, tokencover.tables; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_words_that_do_not_fit_become_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TextTable(
        ["question", "right", "answer"], [["which ?\na remark", "", "a pond"]], words=3
    )
    terminal = open_terminal(monkeypatch, width=30)
    print_table(table)
    assert lines_of(terminal) == ["which ?", "a remark", "  answer: a pond"]
    terminal = open_terminal(monkeypatch, width=60)
    print_table(table)
    assert lines_of(terminal)[0].split() == ["question", "right", "answer"]
