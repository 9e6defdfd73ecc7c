"""What boulder knows: right answers on validation scenes, shown few patches, more, and all.

The gate is existence with whole pictures. *Blind* are the same questions with the picture of the
next scene. Intervals (95 %) resample scenes.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch

from boulder.assembly import Boulder, assemble, see
from boulder.part_lessons import find_ground, write_question
from boulder.question_trees import grow_tree, read_trees
from tokencover.pebble.data import (
    PICTURE_TOKENS,
    SCENE_QUESTIONS,
    Question,
    draw_scene,
    list_seeds,
    make_scene,
    restrict_scene,
)
from tokencover.pebble.model import normalise_pictures
from tokencover.pebble.training import deal_parts
from tokencover.statistics import find_clustered_interval

KINDS: Final = (*("exist",) * 8, *("color", "shape", "read") * 2)
SIGHTS: Final = {"6": (6, 6), "12": (12, 12), "40": (32, 40), "576": (0, PICTURE_TOKENS)}
"""Objects and patches of a part, per number of patches."""
BLIND: Final = "blind"
Marks = dict[str, list[list[bool]]]
"""Right or wrong, per kind, scene and question."""


def ask_part(
    boulder: Boulder, seed: int, sight: str, shown_seed: int
) -> list[tuple[Question, bool]]:
    """Ask about one part of a scene, all kinds.

    Parameters
    ----------
    boulder
        The model.
    seed
        Of the scene that is asked about.
    sight
        A key of `SIGHTS`.
    shown_seed
        Of the scene whose patches are shown: the same one, or another.
    """
    scene, things_patches = make_scene(seed), SIGHTS[sight]
    (part, *_) = deal_parts(np.random.default_rng(seed), find_ground(scene), *things_patches)
    asked = list(dict.fromkeys(SCENE_QUESTIONS.ask(restrict_scene(scene, part), KINDS)))
    tree = grow_tree([write_question(boulder, question) for question in asked])
    with torch.inference_mode():
        picture = normalise_pictures([draw_scene(make_scene(shown_seed))])
        patches = torch.from_numpy(part)
        features = see(boulder.llava, picture)[:, patches]
        visual = boulder.llava.model.multi_modal_projector(features)
        logits = read_trees(boulder.llava, visual, patches[None], PICTURE_TOKENS, [tree])
    right = logits.argmax(1) == torch.tensor(tree.targets)
    marks = [bool(right[spot]) for spot in tree.judged]
    return list(zip(asked, marks, strict=True))


def mark_scenes(boulder: Boulder, seeds: Sequence[int], sight: str) -> Marks:
    """Ask about every scene; `sight` may be `BLIND`."""
    marks: Marks = defaultdict(list)
    for seed in seeds:
        whole, shown = (str(PICTURE_TOKENS), seed + 1) if sight == BLIND else (sight, seed)
        each: dict[str, list[bool]] = defaultdict(list)
        for question, right in ask_part(boulder, seed, whole, shown):
            each[question.kind].append(right)
        for kind, answers in each.items():
            marks[kind].append(answers)
    return marks


def summarise(marks: list[list[bool]]) -> dict[str, float]:
    """Percent right with its interval, and of how many questions."""
    sums = np.array([[float(sum(each))] for each in marks])
    counts = np.array([[len(each)] for each in marks])
    low, high = find_clustered_interval(sums, counts, 2000, 0)
    return {
        "right": round(100 * sums.sum() / counts.sum(), 1),
        "low": round(100 * low, 1),
        "high": round(100 * high, 1),
        "asked": int(counts.sum()),
    }


def main() -> None:
    """Print one line for each number of patches and kind of question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, default=Path("runs/boulder/base"))
    parser.add_argument("--state", type=Path, default=Path("runs/boulder/state.pt"))
    parser.add_argument("--scenes", type=int, default=60)
    parser.add_argument("--sights", nargs="+", default=[*SIGHTS, BLIND], choices=[*SIGHTS, BLIND])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    boulder = assemble(arguments.base)
    boulder.load(arguments.state)
    seeds = list_seeds("validation", arguments.scenes)
    for sight in arguments.sights:
        for kind, marks in mark_scenes(boulder, seeds, sight).items():
            print(json.dumps({"patches": sight, "kind": kind, **summarise(marks)}), flush=True)


if __name__ == "__main__":
    main()
