"""How far an evaluation is, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

LINE_EVERY = 10.0
"""Seconds between lines in a log file."""
REDRAW_EVERY = 0.2


class Progress:
    """Units of work done and time left, on one line of a terminal, or a line now and then.

    Parameters
    ----------
    stream : TextIO
        Where to write, for example standard error.
    units : int
        How many there are to do.
    clock : callable
        Gives seconds.
    """

    def __init__(
        self, stream: TextIO, units: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._units, self._clock = stream, units, clock
        self._terminal = stream.isatty()
        self._begun = self._shown = clock()
        self._finished, self._name = 0, ""
        self._within, self._width = 0.0, 0
        self._resumed, self._examples = 0.0, ""

    def begin(self, name: str) -> None:
        """Start a unit."""
        self._name, self._examples = name, ""
        self._show(now=False)

    def resume(self, answered: int, examples: int) -> None:
        """So many of the unit's examples were done by an earlier process, and took no time here."""
        self._resumed += answered / examples
        self.advance(answered, examples)

    def advance(self, answered: int, examples: int) -> None:
        """So many of the unit's examples are done."""
        self._within = answered / examples
        self._examples = f"{answered} of {examples} examples, "
        self._show(now=False)

    def finish(self) -> None:
        """The unit is done."""
        self._finished += 1
        self._within, self._examples = 0.0, ""
        self._show(now=self._finished == self._units)

    def close(self) -> None:
        """Leave the line on the terminal, so that what is printed next has its own."""
        if self._width:
            self._stream.write("\n")
            self._width = 0

    def note(self, text: str) -> None:
        """Say something that stays."""
        self.close()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def _show(self, now: bool) -> None:
        wait = REDRAW_EVERY if self._terminal else LINE_EVERY
        if not now and self._clock() - self._shown < wait:
            return
        self._shown = self._clock()
        done = f"{self._finished} of {self._units} done, {self._examples}{self._name_time_left()}"
        line = f"{done}: {self._name}"
        if self._terminal:
            line = line[:100]
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def _name_time_left(self) -> str:
        done = self._finished + self._within
        here = done - self._resumed
        if here <= 0:
            return "time left not known yet"
        elapsed = self._clock() - self._begun
        return f"{format_duration(elapsed * (self._units - done) / here)} left"


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds as people write them: 1:02:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
