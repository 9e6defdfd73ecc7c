"""Progress of a long run: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

LINE_EVERY = 10.0
"""Seconds between lines in a log file."""
MEMORY = 600.0
"""Seconds from which a bar estimates the time left; a few would mislead, since units differ."""


class Progress:
    """Finished units of work and the time left, as lines of a log.

    `stream` is where to write, `units` how many there are to do, and `clock` returns seconds.
    """

    def __init__(
        self, stream: TextIO, units: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._units, self._clock = stream, units, clock
        self._begun = self._shown = clock()
        self._finished, self._name = 0, ""
        self._within, self._resumed, self._examples = 0.0, 0.0, ""

    def begin(self, name: str) -> None:
        """Start a unit."""
        self._name, self._examples = name, ""
        self._show(now=False)

    def resume(self, answered: int, examples: int) -> None:
        """Count examples of the unit that an earlier process did, and that took no time here."""
        self._resumed += answered / examples
        self.advance(answered, examples)

    def advance(self, answered: int, examples: int) -> None:
        """Set how many of the unit's examples are done."""
        self._within = answered / examples
        self._examples = f"{answered} of {examples} examples, "
        self._show(now=False)

    def finish(self) -> None:
        """Finish the unit."""
        self._finished += 1
        self._within, self._examples = 0.0, ""
        self._show(now=self._finished == self._units)

    def note(self, text: str) -> None:
        """Print a message that stays."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """Finish the output: what is printed next has its own line."""

    def _show(self, now: bool) -> None:
        if not now and self._clock() - self._shown < LINE_EVERY:
            return
        self._shown = self._clock()
        done = f"{self._finished} of {self._units} done, {self._examples}{self._format_time_left()}"
        self._stream.write(f"{done}: {self._name}\n")
        self._stream.flush()

    def _format_time_left(self) -> str:
        done = self._finished + self._within
        here = done - self._resumed
        if here <= 0:
            return "time left not known yet"
        elapsed = self._clock() - self._begun
        return f"{format_duration(elapsed * (self._units - done) / here)} left"


class ProgressBar(Progress):
    """The same as a bar on a terminal, drawn by rich."""

    def __init__(self, units: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        super().__init__(sys.stderr, units)
        self._bars = Bars(
            BarColumn(bar_width=24),
            MofNCompleteColumn(separator=" of "),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[examples]}{task.description}"),
            console=Console(stderr=True, highlight=False),
            speed_estimate_period=MEMORY,
            auto_refresh=False,  # a drawing thread would disturb timings
        )
        self._bar = self._bars.add_task("", total=units, examples="")

    def note(self, text: str) -> None:
        """Print a message that stays."""
        self._bars.console.print(text, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar on the terminal."""
        is_started = self._bars.live.is_started
        self._bars.update(self._bar, description="", examples="", refresh=is_started)
        self._bars.stop()

    def _show(self, now: bool) -> None:
        from rich.markup import escape

        self._bars.start()
        self._bars.update(
            self._bar,
            completed=self._finished + self._within,
            description=escape(self._name),
            examples=self._examples,
            refresh=True,
        )


def open_progress(units: int) -> Progress:
    """Show units of work on standard error: a bar on a terminal, else lines."""
    return ProgressBar(units) if sys.stderr.isatty() else Progress(sys.stderr, units)


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds: 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
