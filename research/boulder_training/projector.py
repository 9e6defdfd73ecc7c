"""Teach the projector, without the language model, to describe patches in that model's words.

A patch's description is the sum of the base model's own vectors of its words (colour, shape,
number, ground, where it lies), as for the models that pebble's videos start from.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import numpy as np
import torch

from research.boulder_training.assembly import list_word_vectors, prepare, see
from research.boulder_training.stages import RUN
from research.pebble_training import compute_description_loss
from research.pebble_training.patch_labels import label_scene, weigh_words
from tokencover_models.pebble.data import draw_scene, get_training_seed, make_scene
from tokencover_models.pebble.model import normalise_pictures

PICTURES: Final = 4
RATE: Final = 2e-3


def main() -> None:
    """Train the projector and write it as the start of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/boulder"))
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    boulder = prepare()
    words, shared = list_word_vectors(boulder)
    projector = boulder.llava.model.multi_modal_projector
    optimizer = torch.optim.AdamW(projector.parameters(), lr=RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)
    for step in range(arguments.steps):
        seeds = [get_training_seed(RUN, 0, PICTURES * step + index) for index in range(PICTURES)]
        scenes = [make_scene(seed) for seed in seeds]
        labels = np.stack([label_scene(scene) for scene in scenes])
        with torch.no_grad():
            features = see(boulder.llava, normalise_pictures([draw_scene(s) for s in scenes]))
        loss, told = compute_description_loss(
            projector(features),
            words,
            torch.from_numpy(labels),
            torch.from_numpy(weigh_words(labels)),
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == arguments.steps - 1:
            shares = " ".join(f"{name} {100 * share:.1f}" for name, share in told.items())
            print(f"step {step} loss {loss:.3f} {shares}", flush=True)
    with torch.no_grad():  # what was left out of the words above
        projector.linear_2.bias += shared
    boulder.save(arguments.out / "projector.pt")


if __name__ == "__main__":
    main()
