"""Tables, plain and drawn."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest

from tokencover.tables import TextTable, align_columns, print_table, print_text

HEADER = ("method", "faster", "kept")
ROWS = [("mob", "2.31x", "64"), ("unpruned\nas it is", "-", "576")]
MARKDOWN = """# Title

| method | budget | a \\| b\\_ c |
| --- | --- | ---: |
| mob | 64 | no |
| unpruned | - | 100.0 |

Words [in brackets] that say what the columns mean."""
MARKDOWN_TABLE = TextTable(
    ("method", "budget", "a | b_ c"),
    [("mob", "64", "no"), ("unpruned", "-", "100.0")],
    words=2,
    above="Title",
    notes=["Words [in brackets] that say what the columns mean."],
    markdown=True,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def open_terminal(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> Terminal:
    """To be called within a test: pytest gives every phase a standard output that is separate."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return screen


def lines_of(screen: Terminal) -> list[str]:
    """What is read; bold and dim are no colors, NO_COLOR leaves them."""
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in screen.getvalue().splitlines()]


def test_table_aligns_numbers_right_remarks_below() -> None:
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
    print_table(MARKDOWN_TABLE)
    assert str(MARKDOWN_TABLE) == MARKDOWN
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


def test_wide_table_is_transposed(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, width=40)
    print_table(
        TextTable(["method", *(f"column {each}" for each in range(5))], [["mob", *"12345"]])
    )
    header, _, *rows = lines_of(terminal)
    assert header.split() == ["method", "mob"]
    assert rows[1].split() == ["column", "1", "2"]


def test_table_wide_both_ways_is_split(
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


def test_long_lines_wrap_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch, width=12)
    print_text("  some words\nthat [bold] are long")
    assert lines_of(terminal) == ["  some words", "that [bold]", "are long"]


def test_markdown_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(monkeypatch)
    print_table(MARKDOWN_TABLE)
    title, _, header, _, first, second, _, words = lines_of(terminal)
    assert title == "Title"
    assert header.split() == ["method", "budget", "a", "|", "b_", "c"]
    assert first.split() == ["mob", "64", "no"]
    assert second.split() == ["unpruned", "-", "100.0"]
    assert words == "Words [in brackets] that say what the columns mean."


def test_rich_imported_on_demand() -> None:
    code = "import sys, tokencover.tables; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_long_words_become_list(monkeypatch: pytest.MonkeyPatch) -> None:
    table = TextTable(
        ["question", "right", "answer"], [["which ?\na remark", "", "a pond"]], words=3
    )
    terminal = open_terminal(monkeypatch, width=30)
    print_table(table)
    assert lines_of(terminal) == ["which ?", "a remark", "  answer: a pond"]
    terminal = open_terminal(monkeypatch, width=60)
    print_table(table)
    assert lines_of(terminal)[0].split() == ["question", "right", "answer"]


def read_parts(text: str) -> list[list[str]]:
    return [part.splitlines() for part in text.strip().split("\n\n")]


def test_a_piped_table_stays_below_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    header = ["method", *(f"a long heading {number}" for number in range(12))]
    rows = [["mob", *map(str, range(12))], ["fastv", *map(str, range(12, 24))]]
    print_table(TextTable(header, rows, above="above " * 30, notes=["note " * 40]))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) < 120
    assert {str(number) for number in range(24)} <= set(printed.split())
    assert printed.count("mob") == printed.count("fastv") == 1  # turned: a row for each column


def test_piped_sentences_stay_below_120_columns(capsys: pytest.CaptureFixture[str]) -> None:
    table = TextTable(["question", "answer"], [["what ? " * 20, "a cat " * 20]], words=2)
    print_table(table)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) < 120
    assert printed.count("cat") == 20


def test_piped_markdown_is_divided_into_tables(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"a long heading {number}" for number in range(10)]
    numbers = [["mob", "64", *map(str, range(10))], ["mob", "32", *map(str, range(10, 20))]]
    print_table(TextTable(["method", "budget", *names], numbers, markdown=True))
    parts = read_parts(capsys.readouterr().out)
    assert len(parts) == 2
    found = []
    for header, marks, *rows in parts:
        assert header.startswith("| method | budget | a long heading")
        assert marks.startswith("| --- | ---: | ---:")
        assert [row.split(" | ")[:2] for row in rows] == [["| mob", "64"], ["| mob", "32"]]
        assert len({line.count("|") for line in (header, marks, *rows)}) == 1
        assert len(header) < 120
        found += header.strip("| ").split(" | ")[2:]
    assert found == names


def test_long_reason_below_piped_table(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "cannot: " + "this model has no tiles " * 6 + "at all"
    print_table(TextTable(("method", "budget", "fine"), [("mob", "64", reason)], markdown=True))
    table, below = read_parts(capsys.readouterr().out)
    assert table[2].startswith("| mob | 64 | cannot: this model has no tiles")
    assert table[2].endswith(" ... |")
    assert " ".join(below) == f"mob 64: {reason}"
    assert max(map(len, [*table, *below])) < 120


def test_piped_paragraphs_wrap_except_long_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = "/a/" + "long" * 40
    print_text(f"  saved to {path} and " + "more " * 30)
    lines = capsys.readouterr().out.splitlines()
    assert path in [line.strip() for line in lines]
    assert all(line.startswith("  ") for line in lines)
    assert [line for line in lines if len(line) >= 120] == [f"  {path}"]
