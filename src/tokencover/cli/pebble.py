"""``tokencover pebble``: the bundled models, trained again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tokencover.cli.options import read_new_folder, read_path, read_whole_number, take

TrainingFolder = Annotated[
    Path, take("--out", "FOLDER", "Folder for state, log and model.", read=read_new_folder)
]
Seed = Annotated[
    int,
    take("--seed", "N", "Of weights and scenes.", read=read_whole_number),
]
Workers = Annotated[
    int,
    take("--workers", "N", "Processes of one thread each.", read=read_whole_number),
]
ClipsInstead = Annotated[bool, take("--clips", "", "Train the model for clips instead.")]
ClipStart = Annotated[
    Path | None,
    take(
        "--start",
        "FOLDER",
        "Checkpoint that --clips starts from; trained first if not given.",
        read=read_path,
    ),
]
Resume = Annotated[bool, take("--resume", "", "Go on from the state in --out.")]


def train_pebble(
    out: TrainingFolder,
    seed: Seed = 0,
    workers: Workers = 2,
    clips: ClipsInstead = False,
    start: ClipStart = None,
    resume: Resume = False,
) -> None:
    """Train pebble again; an hour or two on two quiet cores, longer on busy ones."""
    from tokencover.pebble.training import run_training

    run_training(out, clips=clips, seed=seed, workers=workers, resume=resume, start=start)
