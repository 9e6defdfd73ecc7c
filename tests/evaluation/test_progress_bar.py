"""The bar that a terminal shows."""

from __future__ import annotations

import io
import sys

import pytest

from tokencover.evaluation.progress import ProgressBar, open_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    progress = open_progress(2)
    assert isinstance(progress, ProgressBar)
    progress.begin("mob 64, [color]")
    progress.advance(1, 2)
    progress.note("by [the] way")
    progress.finish()
    progress.begin("second")
    progress.finish()
    progress.close()
    shown = screen.getvalue()
    assert "mob 64, [color]" in shown
    assert "by [the] way\n" in shown
    assert "2 of 2" in shown
    assert "0:00:0" in shown
    assert shown.endswith("\x1b[?25h")  # the cursor is back


def test_a_log_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = open_progress(1)
    progress.begin("all")
    progress.finish()
    progress.close()
    assert capsys.readouterr().err == "1 of 1 done, 0:00 left: all\n"


def test_nothing_to_do_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    progress = open_progress(0)
    progress.note("8 of 8 are done already")
    progress.close()
    assert screen.getvalue() == "8 of 8 are done already\n"
