"""Calibration: measure a model's coupling on tasks, and the threshold between two groups.

Every finished batch is one line of a record beside the profile: an interrupted run resumes there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from tokencover.budget import Profile, Tokens
from tokencover.errors import InputError
from tokencover.evaluation.answering import VisionLanguageModel, describe_run
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.records import ResultsError
from tokencover.evaluation.tasks import Example, Task
from tokencover.files import name_path, write_atomically
from tokencover.methods import Card, Choice, Method, View, validate_layer_idx
from tokencover.pruning import prune

Couplings = list[float | None]
"""The coupling of each sample of a batch; None if it has no prompt tokens or no image."""


@dataclass(frozen=True)
class MeasureCoupling(Method):
    """Keep everything, and measure eta after the first `after` decoder layers, where MoB would."""

    name: ClassVar[str] = "measure_coupling"
    card: ClassVar[Card] = Card(
        title="Measure coupling",
        year=None,
        objective="none",
        pruning_point="after decoder layer 1",
        signal="distances of visual and prompt tokens; nothing is dropped",
    )

    after: int = 1

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        """Before the layer that follows the first `after` ones."""
        return validate_layer_idx(self.after, num_layers)

    def choose(self, view: View) -> Choice:
        """Keep everything."""
        tokens = [
            Tokens(visual[mask], prompt[prompt_mask])
            for visual, mask, prompt, prompt_mask in zip(
                view.hidden_states, view.mask, view.prompt, view.prompt_mask, strict=True
            )
        ]
        kept = [torch.arange(len(each.visual), device=view.mask.device) for each in tokens]
        return Choice(kept, details=[{"coupling": each.coupling} for each in tokens])


class FinishedBatches:
    """Finished batches in a file with one JSON object per line.

    `run` has what all batches have in common; a file of another run is rejected.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self._path = path
        self._known: dict[tuple[str, str, tuple[str, ...]], Couplings] = {}
        lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()  # the run was killed while it wrote this line
        if not lines:
            write_atomically(path, json.dumps({"run": run}) + "\n")
            return
        stored = self._read(lines)
        if stored != (wanted := json.loads(json.dumps(run))):
            raise InputError(
                f"{path} was begun with {_name_difference(stored, wanted)}: delete it to restart, "
                "or give another --out."
            )
        with path.open("r+b") as file:  # the next batch must start a new line
            file.truncate(sum(map(len, lines)))

    def get(self, task: Task, batch: Sequence[Example]) -> Couplings | None:
        """Return the couplings of a batch; None if it was not measured."""
        return self._known.get((task.name, task.version, _list_ids(batch)))

    def add(self, task: Task, batch: Sequence[Example], coupling: Couplings) -> None:
        """Save a batch."""
        line = {"task": task.name, "version": task.version, "ids": _list_ids(batch)}
        with name_path(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "coupling": coupling}) + "\n")
        self._known[task.name, task.version, _list_ids(batch)] = coupling

    def _read(self, lines: list[bytes]) -> Any:
        """Read all batches; returns what they have in common."""
        try:
            first, *rows = map(json.loads, lines)
            for row in rows:
                key = str(row["task"]), str(row["version"]), tuple(map(str, row["ids"]))
                values = [None if value is None else float(value) for value in row["coupling"]]
                if len(values) != len(key[2]):
                    raise ValueError(f"{len(values)} values for {len(key[2])} samples")
                self._known[key] = values
            return first["run"]
        except (KeyError, TypeError, ValueError) as error:
            raise ResultsError(
                f"{self._path} is damaged, or not a record of calibrate ({type(error).__name__}: "
                f"{error}): delete it to restart."
            ) from error


def calibrate(
    model: VisionLanguageModel,
    tasks: Sequence[Task],
    record: Path,
    progress: Progress,
    *,
    split: str = "validation",
    after: int = 1,
    batch_size: int = 8,
) -> tuple[Profile, int]:
    """Measure coupling on all examples of the tasks, after the first `after` decoder layers.

    `record` is the file of finished batches, which is read first if it exists; `progress` has a
    unit for each task. Returns the profile of all samples that have coupling, and how many have
    none, because they have no prompt tokens or no image.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}.")
    method = MeasureCoupling(after)
    known = FinishedBatches(
        record, describe_run(model, split=split, after=after, batch_size=batch_size)
    )
    couplings: dict[str, list[float]] = {}
    total = 0
    for task in tasks:
        progress.begin(task.name)
        examples, values = list(task.examples()), Couplings()
        for start in range(0, len(examples), batch_size):
            batch = examples[start : start + batch_size]
            measured = known.get(task, batch)
            if measured is None:
                measured = _measure_coupling(model, method, batch)
                known.add(task, batch, measured)
            values += measured
            progress.advance(len(values), len(examples))
        couplings[task.name] = [value for value in values if value is not None]
        total += len(values)
        progress.finish()
    counted = sum(map(len, couplings.values()))
    if not counted:
        raise InputError(
            f"none of {total} samples has prompt tokens and an image: nothing to measure."
        )
    return Profile.of(model.title, after, couplings), total - counted


def _measure_coupling(
    model: VisionLanguageModel, method: Method, batch: Sequence[Example]
) -> Couplings:
    inputs = model.make_inputs(batch)
    with torch.inference_mode(), prune(model.model, method, processor=model.processor) as run:
        model.model(**inputs, logits_to_keep=1)
    coupling = {trace.sample: trace.coupling for trace in run.trace}
    return [coupling.get(row) for row in range(len(batch))]


def _list_ids(batch: Sequence[Example]) -> tuple[str, ...]:
    return tuple(example.id for example in batch)


def _name_difference(stored: Any, wanted: Mapping[str, Any]) -> str:
    if not isinstance(stored, Mapping):
        return f"{stored!r} instead of a run"
    keys = [key for key in wanted if stored.get(key) != wanted[key]] or sorted(stored)
    return "; ".join(f"{key} {stored.get(key)} instead of {wanted.get(key)}" for key in keys)
