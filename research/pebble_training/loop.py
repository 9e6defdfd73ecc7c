"""The training loop: staged, resumable, one or more processes of one thread each."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.nn import Parameter

from research.pebble_training.learners import Learner
from research.pebble_training.lessons import draw_lesson
from research.pebble_training.picture_learner import PictureLearner
from research.pebble_training.revision import list_unknown
from research.pebble_training.run_log import Clock, Tally, write_report
from research.pebble_training.run_state import Position, load_state, save_state
from research.pebble_training.schedules import PICTURE_SCHEDULE, Schedule, Stage
from tokencover.errors import InputError
from tokencover_models.pebble.data import get_training_seed

WARMUP: Final = 0.06
FLOOR: Final = 0.04
SAVE_EVERY: Final = 50
REPORT_EVERY: Final = 10
PICTURE_LEARNER: Final = PictureLearner()


@dataclass(frozen=True)
class PebbleTrainingSettings:
    """What a run is made of.

    Attributes
    ----------
    out
        Folder for the state, the log and the finished model.
    seed
        Of starting weights, scenes and noise.
    workers
        Processes; each uses one thread.
    schedule
        Stages.
    learner
        What is trained.
    stop_after
        Stop after so many steps in all, as an interruption would; None runs to the end.
    """

    out: Path
    seed: int = 0
    workers: int = 2
    schedule: Schedule = PICTURE_SCHEDULE
    learner: Learner = PICTURE_LEARNER
    stop_after: int | None = None

    @property
    def state(self) -> Path:
        """File that holds the state of the run."""
        return self.out / "state.pt"


def train(settings: PebbleTrainingSettings, resume: bool = False) -> None:
    """Train Pebble and save it as ``checkpoint`` in the output folder.

    Parameters
    ----------
    settings
        What to run.
    resume
        Resume from the state in ``settings.out``; an interrupted and resumed run ends with the
        same weights as one that was never interrupted.
    """
    if settings.workers < 1:
        raise InputError(f"workers must be 1 or more, got {settings.workers}")
    if not resume:
        refuse_overwriting(settings)
    settings.out.mkdir(parents=True, exist_ok=True)
    if settings.workers == 1:
        _work(0, settings, None)
        return
    meeting = settings.out.resolve() / f"meeting-{os.getpid()}"
    spawn(_work, args=(settings, meeting), nprocs=settings.workers)
    meeting.unlink(missing_ok=True)


def refuse_overwriting(settings: PebbleTrainingSettings) -> None:
    """Refuse to start afresh where a run stands already."""
    if settings.state.exists():
        raise InputError(
            f"{settings.state} exists already; pass --resume to go on, or another --out"
        )


def _work(rank: int, settings: PebbleTrainingSettings, meeting: Path | None) -> None:
    with _use_one_thread(), _join_processes(rank, settings.workers, meeting):
        _Worker(rank, settings).go()


@contextmanager
def _use_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _join_processes(rank: int, workers: int, meeting: Path | None) -> Iterator[None]:
    if meeting is None:
        yield
        return
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=workers)
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


class _Worker:
    """One process of a run."""

    def __init__(self, rank: int, settings: PebbleTrainingSettings) -> None:
        self.rank = rank
        self.settings = settings
        self.model = settings.learner.start(settings.seed)
        self.helpers = settings.learner.make_helpers(settings.seed)
        self.position, self.moments = Position(), None
        if settings.state.exists():
            self.position, self.moments = load_state(settings.state, self.model, self.helpers)
        self.tally = Tally()

    def go(self) -> None:
        """Run all stages that are left, and those that revise if needed, then save the model."""
        schedule = self.settings.schedule
        if not self._run_stages(schedule.stages):
            return
        revises = schedule.again and self._finds_something_unknown()
        if revises and not self._run_stages((*schedule.stages, *schedule.again)):
            return
        if self.rank == 0:
            self.settings.learner.save(self.model, self.settings.out / "checkpoint")

    def _finds_something_unknown(self) -> bool:
        """Whether there is something to revise; found out once, from then on it is known."""
        settings, position = self.settings, self.position
        if (position.stage, position.step) == (len(settings.schedule.stages), 0):
            found = list_unknown(settings.learner, self.model, self.helpers, settings.schedule)
            position.unknown = found
            if found and self.rank == 0:
                print(f"not known yet: {', '.join(found)}; taught once more", flush=True)
        return bool(position.unknown)

    def _run_stages(self, stages: Sequence[Stage]) -> bool:
        """Run those that are left; False when told to stop before their end."""
        left = stages[self.position.stage :]
        if not left:
            return True
        clock = Clock(stages, self.position)
        return all(self._run_stage(stage, clock) for stage in left)

    def _run_stage(self, stage: Stage, clock: Clock) -> bool:
        """Run a stage from where it stands; False when told to stop before its end."""
        groups = self.settings.learner.list_parameters(self.model, self.helpers, stage)
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01)
        peaks = [group["lr"] for group in optimizer.param_groups]
        if self.moments is not None:
            optimizer.load_state_dict(self.moments)
            self.moments = None
        stop = self.settings.stop_after
        while self.position.step < stage.steps:
            if stop is not None and self.position.done >= stop:
                self._save(optimizer.state_dict())
                return False
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * scale_rate(self.position.step, stage.steps)
            self._step(stage, [p for group in optimizer.param_groups for p in group["params"]])
            optimizer.step()
            # Parts the stage does not train collect gradients too; a later stage must not use them.
            self.model.zero_grad(set_to_none=True)
            self.helpers.zero_grad(set_to_none=True)
            self.position.step += 1
            self.position.done += 1
            clock.tick(stage)
            if self.position.step % REPORT_EVERY == 0:
                self._report(stage, clock)
            if self.position.step % SAVE_EVERY == 0:
                self._save(optimizer.state_dict())
        self.position.stage, self.position.step = self.position.stage + 1, 0
        self._save(None)
        return True

    def _report(self, stage: Stage, clock: Clock) -> None:
        if self.rank == 0:
            write_report(self.settings.out, stage, self.position, self.tally, clock)
        self.tally = Tally()

    def _save(self, moments: dict[str, Any] | None) -> None:
        if self.rank == 0:
            save_state(self.settings.state, self.model, self.helpers, moments, self.position)

    def _step(self, stage: Stage, parameters: list[Parameter]) -> None:
        """Forward, backward, and the mean of all processes' gradients."""
        run, position = self.settings.seed, self.position
        first = (position.step * self.settings.workers + self.rank) * stage.pictures
        seeds = tuple(
            get_training_seed(run, position.stage, first + i) for i in range(stage.pictures)
        )
        coin_seed = run * 7919 + position.done
        lesson = draw_lesson(self.settings.schedule, stage, seeds, coin_seed, position.unknown)
        learner = self.settings.learner
        loss = learner.compute_loss(self.model, self.helpers, lesson, self.tally)
        loss.backward()
        average_gradients(parameters, self.settings.workers)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        self.tally.loss += loss.item()
        self.tally.steps += 1


def average_gradients(parameters: list[Parameter], workers: int) -> None:
    """Replace every process's gradients by their mean."""
    if workers == 1:
        return
    grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= workers
    start = 0
    for parameter in parameters:
        parameter.grad = flat[start : start + parameter.numel()].view_as(parameter).clone()
        start += parameter.numel()


def scale_rate(step: int, steps: int) -> float:
    """Fraction of the peak learning rate at a step: a short rise, then half a cosine."""
    rise = max(1, round(WARMUP * steps))
    if step < rise:
        return (step + 1) / rise
    part = (step - rise) / max(1, steps - rise)
    return FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * part))
