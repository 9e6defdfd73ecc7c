"""How well Pebble answers, type by type, and how well it guesses from a blank image.

    `python -m research.study.pebble_accuracy --split test`
    `python -m research.study.pebble_accuracy --split test --clips`

All questions about an image are run in one pass, which gives each the answer it would get alone
(a test holds this).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from research.pebble_training import (
    NO_TARGET,
    Batch,
    answer_questions,
    compute_answer_loss,
    encode_images,
    encode_videos,
    make_clip_batch,
    make_picture_batch,
)
from tokencover_models.pebble import load_pebble, load_pebble_clips
from tokencover_models.pebble.data import (
    CLIP_QUESTIONS,
    CLIP_TOKENS,
    PICTURE_TOKENS,
    SCENE_QUESTIONS,
    list_seeds,
)
from tokencover_models.pebble.model import PIXEL_MEAN, PIXEL_STD

GREY = 127 / 255
See = Callable[[Any, Tensor], Tensor]
"""Visual tokens of a model from pixels."""
Marks = dict[str, list[bool]]
"""Right or wrong, per type of question."""


def main() -> None:
    """Print one line a type and write the numbers when asked."""
    options = _read_options()
    torch.set_num_threads(1)
    clips = options.clips
    make_batch = make_clip_batch if clips else make_picture_batch
    see: See = encode_videos if clips else lambda model, pixels: encode_images(model, pixels)[0]
    model: Any = (load_pebble_clips if clips else load_pebble)(options.checkpoint)[0]
    questions = CLIP_QUESTIONS if clips else SCENE_QUESTIONS
    visual_tokens = CLIP_TOKENS if clips else PICTURE_TOKENS
    seen: Marks = defaultdict(list)
    blind: Marks = defaultdict(list)
    given: dict[str, Counter[str]] = defaultdict(Counter)
    for seed in list_seeds(options.split, options.scenes):
        batch = make_batch([seed], questions.kinds, visual_tokens)
        grey = torch.full_like(batch.pixels, (GREY - PIXEL_MEAN) / PIXEL_STD)
        for kind, right in _mark_answers(model, see, batch):
            seen[kind].append(right)
        for kind, right in _mark_answers(model, see, replace(batch, pixels=grey)):
            blind[kind].append(right)
        for question in batch.questions[0]:
            given[question.kind][question.answer] += 1
    _print(questions.families, seen, blind, given)
    if options.json:
        shares = {"right": _share_right(seen), "blank": _share_right(blind)}
        asked = {kind: len(marks) for kind, marks in seen.items()}
        options.json.write_text(json.dumps({"asked": asked, **shares}, indent=1) + "\n")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clips", action="store_true", help="the model for videos")
    parser.add_argument("--checkpoint", type=Path, help="folder; by default the shipped model")
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--scenes", type=int, help="by default the whole split")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    return parser.parse_args()


def _mark_answers(model: Any, see: See, batch: Batch) -> Iterator[tuple[str, bool]]:
    """Answer all questions about one image, or video."""
    with torch.inference_mode():
        visual = see(model, batch.pixels)
        _, right = compute_answer_loss(
            answer_questions(model, visual, batch.pack, True), batch.pack
        )
    asked = (batch.pack.targets[0] != NO_TARGET).any(1).tolist()
    marks = [mark for mark, was_asked in zip(right[0].tolist(), asked, strict=True) if was_asked]
    for question, mark in zip(batch.questions[0], marks, strict=True):
        yield question.kind, bool(mark)


def _share_right(marks: Marks) -> dict[str, float]:
    return {kind: sum(each) / len(each) for kind, each in marks.items()}


def _print(
    families: dict[str, str], seen: Marks, blind: Marks, given: dict[str, Counter[str]]
) -> None:
    """One line a type; the best guess is the share of a type's most frequent answer."""
    best = {kind: max(tally.values()) / tally.total() for kind, tally in given.items()}
    columns = (_share_right(seen), _share_right(blind), best)
    print(f"{'type':14} {'family':7} {'asked':>6} {'right':>7} {'blank':>7} {'best guess':>11}")
    for kind, family in families.items():
        if kind not in seen:  # a few scenes may allow no such question
            continue
        right, guessed, most = (f"{100 * column[kind]:.1f}" for column in columns)
        count = len(seen[kind])
        print(f"{kind:14} {family:7} {count:6} {right:>7} {guessed:>7} {most:>11}")
    means = [sum(column.values()) / len(column) for column in columns]
    right, guessed, most = (f"{100 * mean:.1f}" for mean in means)
    total = sum(map(len, seen.values()))
    print(f"{'average':14} {'':7} {total:6} {right:>7} {guessed:>7} {most:>11}")


if __name__ == "__main__":
    main()
