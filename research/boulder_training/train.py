"""Train boulder: the projector and the LoRA, stage by stage; continues where it was left.

Every scene is new, so the shares of correct answers in ``log.jsonl`` are of images that the model
has not been shown before.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from research.boulder_training.assembly import Boulder, prepare
from research.boulder_training.part_lessons import PHRASE, PartLesson, make_lesson
from research.boulder_training.places import teach_places
from research.boulder_training.question_trees import TextTree, read_trees
from research.boulder_training.stages import CONTROL, RUN, STAGES, Stage
from tokencover_models.pebble.data import PICTURE_TOKENS, get_training_seed

PHRASE_WEIGHT: Final = 0.5
PROJECTOR_SHARE: Final = 0.3
"""The projector's learning rate, of the LoRA's."""
WARM_UP: Final = 15
WINDOW: Final = 20
SAVE_EVERY: Final = 20


@dataclass
class Progress:
    """Where a run stands: stage, step in it, seconds spent, recent answers about existence."""

    stage: int = 0
    step: int = 0
    seconds: float = 0.0
    recent: list[float] = field(default_factory=list)


def compute_loss(boulder: Boulder, lesson: PartLesson, renumbered: bool) -> tuple[Tensor, Tensor]:
    """What wrong words cost, and which spots are right."""
    visual = boulder.llava.model.multi_modal_projector(lesson.features)
    positions, places = lesson.positions, PICTURE_TOKENS
    if renumbered:
        places = positions.shape[1]
        positions = torch.arange(places).expand_as(positions)
    logits = read_trees(boulder.llava, visual, positions, places, lesson.trees)
    targets = torch.tensor([target for tree in lesson.trees for target in tree.targets])
    kinds = [kind for tree in lesson.trees for kind in tree.kinds]
    weights = torch.tensor([PHRASE_WEIGHT if kind == PHRASE else 1.0 for kind in kinds])
    each = cross_entropy(logits, targets, reduction="none")
    return (each * weights).sum() / weights.sum(), logits.argmax(1) == targets


def count_right(trees: Sequence[TextTree], right: Tensor) -> dict[str, list[bool]]:
    """Whether the judged word of each text is right, by kind."""
    counted: dict[str, list[bool]] = defaultdict(list)
    start = 0
    for tree in trees:
        for spots in tree.judged:
            told = right[start + spots.start : start + spots.stop].all()
            counted[tree.kinds[spots.start]].append(bool(told))
        start += len(tree.spots)
    return counted


def list_groups(boulder: Boulder) -> list[dict[str, Any]]:
    """Parameters for the optimiser: LoRA first, projector second."""
    learned = boulder.learned()
    projector = [tensor for name, tensor in learned.items() if "projector" in name]
    lora = [tensor for name, tensor in learned.items() if "projector" not in name]
    return [{"params": lora}, {"params": projector}]


def set_rate(optimizer: torch.optim.Optimizer, stage: Stage, step: int) -> None:
    """Warm up at the start of each stage; most do not fall, since stages end when they may."""
    rate = stage.rate * min(1.0, (step + 1) / WARM_UP)
    rate *= 1 - (1 - stage.falls_to) * step / stage.steps
    optimizer.param_groups[0]["lr"] = rate
    optimizer.param_groups[1]["lr"] = PROJECTOR_SHARE * rate


def run_step(
    boulder: Boulder, optimizer: torch.optim.Optimizer, stage: Stage, progress: Progress
) -> dict[str, Any]:
    """One optimiser step; returns its line of the log."""
    began = time.perf_counter()
    set_rate(optimizer, stage, progress.step)
    coin = np.random.default_rng([RUN, progress.stage, progress.step])
    patches = int(coin.choice(stage.patches))
    most = stage.count_pictures(min(stage.patches))
    seeds = [
        get_training_seed(RUN, 1 + progress.stage, progress.step * most + index)
        for index in range(stage.count_pictures(patches))
    ]
    lesson = make_lesson(boulder, stage, patches, seeds)
    loss, right = compute_loss(boulder, lesson, renumbered=bool(coin.random() < 0.5))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(list(boulder.learned().values()), 1.0)
    optimizer.step()
    counted = count_right(lesson.trees, right)
    progress.recent = [*progress.recent, float(np.mean(counted["exist"]))][-WINDOW:]
    progress.step += 1
    progress.seconds += time.perf_counter() - began
    return {
        "stage": stage.name,
        "step": progress.step,
        "patches": lesson.positions.shape[1],
        "loss": round(loss.item(), 4),
        "minutes": round(progress.seconds / 60, 2),
        **{kind: [sum(each), len(each)] for kind, each in counted.items()},
    }


def is_over(stage: Stage, progress: Progress) -> bool:
    """Whether the stage has had its steps, or the model knows enough to go on."""
    known = len(progress.recent) == WINDOW and np.mean(progress.recent) >= stage.enough
    return progress.step >= stage.steps or bool(known)


def train(boulder: Boulder, out: Path, minutes: float, stages: Sequence[Stage]) -> None:
    """Train until the last stage is over or the time is up.

    Parameters
    ----------
    boulder
        With its projector trained.
    out
        Folder of the run.
    minutes
        How long this call may take.
    stages
        What is run.
    """
    deadline = time.monotonic() + 60 * minutes
    optimizer = torch.optim.AdamW(list_groups(boulder), betas=(0.9, 0.98), weight_decay=0.0)
    progress, state = Progress(), out / "state.pt"
    if state.exists():
        saved = boulder.load(state)
        optimizer.load_state_dict(saved["optimizer"])
        progress = Progress(**saved["progress"])
    else:
        boulder.load(out / "projector.pt")
    with (out / "log.jsonl").open("a", encoding="utf-8") as log:
        while progress.stage < len(stages) and time.monotonic() < deadline:
            stage = stages[progress.stage]
            if stage.places and not progress.step:
                teach_places(boulder)
            line = run_step(boulder, optimizer, stage, progress)
            print(json.dumps(line), file=log, flush=True)
            over = is_over(stage, progress)
            if over:
                progress = Progress(progress.stage + 1, 0, progress.seconds)
            if over or progress.step % SAVE_EVERY == 0:
                optimizer_state = optimizer.state_dict()
                boulder.save(state, optimizer=optimizer_state, progress=asdict(progress))
    boulder.save(state, optimizer=optimizer.state_dict(), progress=asdict(progress))


def main() -> None:
    """Train, or go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/boulder"))
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--control", action="store_true", help="without the easier questions")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    stages = CONTROL if arguments.control else STAGES
    train(prepare(), arguments.out, arguments.minutes, stages)


if __name__ == "__main__":
    main()
