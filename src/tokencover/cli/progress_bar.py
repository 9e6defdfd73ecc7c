"""How far a command is: a bar with the time left on a terminal, a line now and then in a log.

Not a command itself: commands import it when they begin to work.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from tokencover.evaluation import Progress

MEMORY = 600.0
"""Seconds from which the time left is estimated; units differ, a few would mislead."""


def open_progress(units: int) -> Progress:
    """Show units of work on standard error, as fits where that goes."""
    return ProgressBar(units) if sys.stderr.isatty() else Progress(sys.stderr, units)


class ProgressBar(Progress):
    """A bar, how many units of work are done, the time left, and what is being done.

    Parameters
    ----------
    units : int
        How many there are to do.
    """

    def __init__(self, units: int) -> None:
        super().__init__(sys.stderr, units)
        self._bars = Bars(
            BarColumn(bar_width=24),
            MofNCompleteColumn(separator=" of "),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[examples]}{task.description}"),
            console=Console(stderr=True, highlight=False),
            speed_estimate_period=MEMORY,
            auto_refresh=False,  # drawing meanwhile, in a thread, would disturb what is timed
        )
        self._bar = self._bars.add_task("", total=units, examples="")
        self._whole = 0

    def begin(self, name: str) -> None:
        """Start a unit."""
        self._bars.start()
        self._bars.update(self._bar, description=escape(name), examples="", refresh=True)

    def advance(self, answered: int, examples: int) -> None:
        """So many of the unit's examples are done."""
        self._bars.update(
            self._bar,
            completed=self._whole + answered / examples,
            examples=f"{answered} of {examples} examples, ",
            refresh=True,
        )

    def finish(self) -> None:
        """The unit is done."""
        self._whole += 1
        self._bars.update(self._bar, completed=self._whole, examples="", refresh=True)

    def close(self) -> None:
        """Leave the bar on the terminal, so that what is printed next has its own line."""
        self._bars.update(
            self._bar, description="", examples="", refresh=self._bars.live.is_started
        )
        self._bars.stop()

    def note(self, text: str) -> None:
        """Say something that stays."""
        self._bars.console.print(text, markup=False, soft_wrap=True)
