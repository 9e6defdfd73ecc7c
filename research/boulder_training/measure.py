"""What the shipped boulder knows: the benchmark's questions, with the whole image and blind.

All questions about a scene are read in one pass, so this is quicker than ``tokencover evaluate
--model boulder``, and asks the same. *Blind* are the same questions with the image of the next
scene. Intervals (95 %) resample scenes.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

import tokencover as tc
from research.boulder_training.assembly import see
from research.boulder_training.part_lessons import write_question
from research.boulder_training.question_trees import grow_tree, read_trees
from tokencover.statistics import compute_cluster_bootstrap_ci
from tokencover_models.pebble.data import (
    PICTURE_TOKENS,
    SCENE_QUESTIONS,
    Question,
    draw_scene,
    list_seeds,
    make_scene,
)
from tokencover_models.pebble.model import normalise_pictures

DRAWS: Final = 2000
Marks = dict[str, list[bool]]
"""Right or wrong per kind, one question a scene; scenes that cannot be asked are left out."""


def ask_scene(llava: Any, tokenizer: Any, seed: int, shown: int) -> list[tuple[Question, bool]]:
    """Ask all about one scene; an answer is right if it ends where it should too.

    Parameters
    ----------
    llava, tokenizer
        The model.
    seed
        Of the scene that is asked about.
    shown
        Of the scene whose image is shown.
    """
    asked = SCENE_QUESTIONS.ask(make_scene(seed))
    tree = grow_tree([write_question(tokenizer, question, ended=True) for question in asked])
    with torch.inference_mode():
        features = see(llava, normalise_pictures([draw_scene(make_scene(shown))]))
        visual = llava.model.multi_modal_projector(features)
        places = torch.arange(PICTURE_TOKENS)[None]
        logits = read_trees(llava, visual, places, PICTURE_TOKENS, [tree])
    right = logits.argmax(1) == torch.tensor(tree.targets)
    marks = [bool(right[spots.start : spots.stop].all()) for spots in tree.judged]
    return list(zip(asked, marks, strict=True))


def mark_scenes(llava: Any, tokenizer: Any, seeds: Sequence[int], blind: bool) -> Marks:
    """Ask about every scene."""
    marks: Marks = defaultdict(list)
    for seed in seeds:
        for question, right in ask_scene(llava, tokenizer, seed, seed + int(blind)):
            marks[question.kind].append(right)
    return marks


def format_fraction(marks: list[bool]) -> str:
    """Percent right with its interval."""
    sums = np.array([[float(right)] for right in marks])
    ones = np.ones((len(marks), 1), dtype=np.int64)
    low, high = compute_cluster_bootstrap_ci(sums, ones, DRAWS, seed=0)
    return f"{100 * np.mean(marks):.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def main() -> None:
    """Print a row for each kind of question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, help="by default the shipped one")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--json", type=Path, help="write all marks here")
    arguments = parser.parse_args()
    llava, processor = tc.load_boulder(arguments.checkpoint)
    seeds = list_seeds(arguments.split, arguments.scenes)
    whole, blind = (mark_scenes(llava, processor.tokenizer, seeds, each) for each in (False, True))
    print("| kind | asked | right, % | blind, % |\n|---|---:|---:|---:|")
    for kind in SCENE_QUESTIONS.kinds:
        right = format_fraction(whole[kind]), format_fraction(blind[kind])
        print("| " + " | ".join([kind, str(len(whole[kind])), *right]) + " |")
    means = [
        100 * float(np.mean([np.mean(each) for each in marks.values()])) for marks in (whole, blind)
    ]
    print(f"| mean of the kinds | | {means[0]:.1f} | {means[1]:.1f} |")
    if arguments.json:
        arguments.json.write_text(json.dumps({"whole": whole, "blind": blind}), "utf-8")


if __name__ == "__main__":
    main()
