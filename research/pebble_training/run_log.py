"""What a training run says while it goes: a line with the time left, and a log of details."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from research.pebble_training.run_state import Position
from research.pebble_training.schedules import Stage
from tokencover_models.pebble.data import Question


@dataclass
class Tally:
    """Sums since the last report.

    Attributes
    ----------
    loss
        Sum over steps.
    steps
        How many.
    right
        Correct answers and questions, per kind.
    told
        Sum over steps of the share of patches that tell their word, per group.
    """

    loss: float = 0.0
    steps: int = 0
    right: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    told: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, kind: str, hits: Iterable[bool]) -> None:
        """Count answers of one kind, right or wrong."""
        for hit in hits:
            self.right[kind][0] += int(hit)
            self.right[kind][1] += 1

    def count_answers(self, questions: Sequence[Sequence[Question]], right: Tensor) -> None:
        """Count the answers to questions about several images, shape (images, questions)."""
        for asked, hits in zip(questions, right.tolist(), strict=True):
            for question, hit in zip(asked, hits, strict=False):
                self.count(question.kind, [hit])

    def summarise(self) -> dict[str, Any]:
        """Means as plain values."""
        steps = max(self.steps, 1)
        return {
            "loss": round(self.loss / steps, 4),
            "right": {kind: round(a / b, 3) for kind, (a, b) in self.right.items()},
            "told": {name: round(value / steps, 3) for name, value in self.told.items()},
        }


class Clock:
    """Estimates the time left from the rough costs of stages and the pace so far."""

    def __init__(self, stages: Sequence[Stage], position: Position) -> None:
        self.left = -stages[position.stage].cost * position.step
        self.left += sum(stage.cost * stage.steps for stage in stages[position.stage :])
        self.spent = 0.0
        self.start = time.monotonic()

    def tick(self, stage: Stage) -> None:
        """Count one step of a stage."""
        self.left -= stage.cost
        self.spent += stage.cost

    @property
    def minutes_left(self) -> float:
        """Expected minutes to the end of the run."""
        pace = (time.monotonic() - self.start) / max(self.spent, 1e-9)
        return self.left * pace / 60


def write_report(out: Path, stage: Stage, position: Position, tally: Tally, clock: Clock) -> None:
    """Print one line and append the details to the log."""
    summary = tally.summarise()
    rights, told = summary["right"].values(), summary["told"]
    parts = [f"{stage.name} {position.step}/{stage.steps}", f"loss {summary['loss']:.3f}"]
    if rights:
        parts.append(f"answers {100 * sum(rights) / len(rights):.1f} %")
    if told:
        parts.append(f"shapes {100 * told['shape']:.1f} % numbers {100 * told['digit']:.1f} %")
    print("  ".join([*parts, f"{clock.minutes_left:.1f} min left"]), flush=True)
    entry = {"stage": stage.name, "step": position.step, "time": time.time(), **summary}
    with (out / "log.jsonl").open("a") as log:
        log.write(json.dumps(entry) + "\n")
