"""What was kept, in words."""

from __future__ import annotations

from tokencover.runtime import Trace
from tokencover.viewing.marks import Mark, Marks, Role, marks_of

ROLES: dict[Role, str] = {
    "prompt": "chosen for the question",
    "visual": "chosen to cover the rest",
    "kept": "kept",
}
"""What each colour means."""


def describe(trace: Trace) -> str:
    """One line: how many tokens were kept, and what for."""
    marks = marks_of(trace)
    left = len(marks.placed) + marks.placeless + marks.merged
    told = [f"{left} of {trace.visual_tokens} visual tokens kept"]
    if "wiped" in trace.details:
        told[0] += f" until the last blocks and {len(trace.kept)} in them"
    centers: tuple[Role, Role] = ("prompt", "visual")
    told += [f"{marks.count(role)} {ROLES[role]}" for role in centers if marks.count(role)]
    if marks.placeless:
        told.append(f"{marks.placeless} without a place (newline or class tokens)")
    if marks.merged:
        told.append(f"{marks.merged} merged of several")
    return ", ".join(told)


def describe_mark(mark: Mark) -> str:
    """One line about one token: where it lies, when it was chosen, and by which word."""
    told = [f"row {mark.row + 1}, column {mark.column + 1}"]
    if mark.order is not None:
        told.append(f"{mark.role} centre {mark.order}")
    else:
        told.append("kept")
    if mark.word is not None:
        told.append(f"chosen by “{mark.word}”")
    return " · ".join(told)


def describe_view(marks: Marks, medium: int, frame: int, grid: tuple[int, int]) -> str:
    """A few words about one view: its grid, and how much of it was kept."""
    rows, columns = grid
    return f"{rows} x {columns} tokens, {len(marks.of_view(medium, frame))} kept"
