"""Runs evaluations as the command does."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

from tests.cli.calling import call
from tokencover.evaluation import VisionLanguageModel
from tokencover.evaluation.plan import EvaluationPlan
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.runner import GenerationSettings, do_work, list_pending_units
from tokencover.evaluation.store import ResultsFolder
from tokencover_models.pebble.data import make_examples as pebble_examples

RUN = {"model": {"name": "pebble"}, "settings": {"limit": 2}}
SMALL = ("--tasks", "pebble/color,pebble/place", "--limit", "2", "--threads", "1")


def command(*arguments: str) -> None:
    """``tokencover evaluate`` with these arguments."""
    call("evaluate", *arguments)


def do(
    model: VisionLanguageModel,
    plan: EvaluationPlan,
    folder: Path,
    settings: GenerationSettings | None = None,
) -> tuple[ResultsFolder, str]:
    """Do a plan; returns the results, and what was said meanwhile."""
    results, said = ResultsFolder.open(folder, RUN), io.StringIO()
    work = list_pending_units(plan.work, results)
    progress = Progress(said, len(work))
    do_work(model, work, results, settings or GenerationSettings(), progress, timing_batches=1)
    return results, said.getvalue()


def image_task(path: Path, examples: int, **more: object) -> Path:
    """A task file with pebble's questions, and its images beside it: 0.png, 1.png, ..."""
    rows = []
    for number, each in enumerate(pebble_examples("test", examples, ["color"])):
        each.picture.save(path.parent / f"{number}.png")
        row = {"image": f"{number}.png", "question": each.question, "answers": [each.answer]}
        rows.append({**row, "id": f"q{number}", **more})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def contents(folder: Path, kinds: Sequence[str] = ("run", "scores")) -> dict[str, bytes]:
    """The files of a folder; timings differ from run to run."""
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {name: data for name, data in found.items() if name.startswith(tuple(kinds))}
