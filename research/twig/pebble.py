"""Does a trained twig choose better? Trains one on Pebble, then compares.

    python -m research.twig.pebble train --out runs/twig          # some minutes, one thread
    python -m research.twig.pebble compare --weights runs/twig    # accuracy at 64 tokens

`compare` without `--weights` takes the twig that comes with the package.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tokencover as tc
from research.pebble_training import LEAD, NO_TARGET, make_picture_batch
from research.study.answer_tables import average_kinds, compare_tables, make_table
from research.twig.training import TrainingSettings, train
from tokencover.methods import FastV, FinalWipe, LookAhead, Method, TwigVLM
from tokencover.twig import save_twig
from tokencover_models.pebble.data import (
    PICTURE_TOKENS,
    SCENE_QUESTIONS,
    PictureExample,
    get_training_seed,
    make_examples,
)
from tokencover_models.pebble.model import IMAGE, PAD, PICTURE_WORD_IDS, PICTURE_WORDS, make_prompt

KINDS = SCENE_QUESTIONS.kinds
AFTER, DEPTH, WIPE = 2, 1, 0.75
SAVE_EVERY = 20
TWIG_RUN = 100
"""Runs of the models themselves are numbered by their seeds; scenes of another run are new to the
twig and to its base."""


def main() -> None:
    """Train or compare."""
    options = _read_options()
    torch.set_num_threads(1)
    model, processor = tc.load_pebble(options.checkpoint)
    if options.command == "train":
        train_twig(
            model,
            options.out,
            steps=options.steps,
            pictures=options.pictures,
            rate=options.rate,
            depth=options.depth,
        )
    else:
        _compare(model, processor, options)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--checkpoint", type=Path, help="folder; by default the shipped model")
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--out", type=Path, required=True, help="folder for the twig")
    training.add_argument("--steps", type=int, default=300)
    training.add_argument("--pictures", type=int, default=4, help="of a batch")
    training.add_argument("--rate", type=float, default=1e-3)
    training.add_argument("--depth", type=int, default=DEPTH, help="blocks of the twig")
    comparing = commands.add_parser("compare")
    comparing.add_argument("--weights", default="pebble", help="folder, or the shipped twig")
    comparing.add_argument("--budget", type=int, default=64)
    comparing.add_argument("--split", default="validation", choices=("test", "validation"))
    comparing.add_argument("--scenes", type=int, default=100)
    comparing.add_argument("--depth", type=int, default=DEPTH, help="blocks of the look-ahead")
    return parser.parse_args()


# ---- training -------------------------------------------------------------------------------


def train_twig(
    model: Any,
    out: Path,
    *,
    steps: int = 300,
    pictures: int = 4,
    rate: float = 1e-3,
    depth: int = DEPTH,
) -> None:
    """Train a twig for a model and save it, from where an earlier try stands.

    Parameters
    ----------
    model
        An image model.
    out
        Folder for the twig.
    steps, images, rate
        Steps, images in each, and the learning rate.
    depth
        Blocks of the twig.
    """
    settings = TrainingSettings(steps, after=AFTER, depth=depth, rate=rate)
    start = time.monotonic()
    recent: list[float] = []

    def report(step: int, loss: float) -> None:
        recent.append(loss)
        if step % 10 == 0:
            mean = sum(recent[-10:]) / len(recent[-10:])
            print(f"step {step:4} loss {mean:.3f} ({time.monotonic() - start:.0f} s)", flush=True)

    twig = train(
        model,
        make_batches(pictures),
        settings,
        checkpoint=out / "state.pt",
        save_every=SAVE_EVERY,
        report=report,
    )
    save_twig(twig, out)


def make_batches(pictures: int) -> Iterator[Mapping[str, Tensor]]:
    """Training batches without end: all kinds of questions after each image.

    The questions do not see each other, and each has the positions it would have alone.
    """
    step = 0
    while True:
        seeds = [get_training_seed(TWIG_RUN, 0, step * pictures + each) for each in range(pictures)]
        yield make_batch(seeds)
        step += 1


def make_batch(seeds: list[int]) -> Mapping[str, Tensor]:
    """What the stock forward takes for images with many questions each, and the labels."""
    batch = make_picture_batch(seeds, KINDS, PICTURE_TOKENS)
    count, questions, length = batch.pack.tokens.shape
    shared = len(LEAD) + PICTURE_TOKENS
    lead = torch.tensor([*LEAD, *[PICTURE_WORD_IDS[IMAGE]] * PICTURE_TOKENS]).expand(count, -1)
    end = torch.full((count, 1), PICTURE_WORD_IDS[PAD])
    no_labels = torch.full((count, shared + 1), NO_TARGET)
    size = shared + questions * length + 1
    own = torch.block_diag(*[torch.ones(length, length)] * questions)
    sees = torch.ones(size, size)
    sees[shared:-1, shared:-1] = own
    places = torch.arange(shared + length)
    order = torch.cat([places[:shared], places[shared:].repeat(questions), places[-1:]])
    return {
        "pixel_values": batch.pixels,
        "input_ids": torch.cat([lead, batch.pack.tokens.flatten(1), end], dim=1),
        "attention_mask": sees.tril().bool().expand(count, 1, -1, -1),
        "position_ids": order.expand(count, -1),
        # A target is what a token should say, a label is what the place after it should hold.
        "labels": torch.cat([no_labels, batch.pack.targets.flatten(1)], dim=1),
    }


# ---- comparing ------------------------------------------------------------------------------


def _compare(model: Any, processor: Any, options: argparse.Namespace) -> None:
    asked = list(make_examples(options.split, options.scenes))
    budget = options.budget
    methods: dict[str, Method | None] = {
        "unpruned": None,
        "FastV": FastV(budget, after=AFTER),
        "FastV + FinalWipe": FinalWipe(FastV(budget, after=AFTER), block=WIPE),
        "LookAhead": LookAhead(budget, after=AFTER, layers=options.depth, wipe=WIPE),
        "TwigVLM": TwigVLM(budget, weights=options.weights, after=AFTER, wipe=WIPE),
    }
    whole = None
    for name, method in methods.items():
        cells = make_table(reply(model, processor, asked, method), KINDS)
        whole = cells if whole is None else whole
        loss = compare_tables(whole, cells)
        print(
            f"{name:18} {100 * average_kinds(cells):5.1f}  loses {100 * loss.mean:.1f} "
            f"[{100 * loss.low:.1f}, {100 * loss.high:.1f}]",
            flush=True,
        )


def reply(
    model: Any,
    processor: Any,
    asked: list[PictureExample],
    method: Method | None,
    batch_size: int = 16,
) -> list[tuple[PictureExample, str]]:
    """One word for each example, greedily."""
    found: list[tuple[PictureExample, str]] = []
    groups: dict[int, list[PictureExample]] = defaultdict(list)
    for example in asked:
        groups[len(example.question.split())].append(example)
    for group in groups.values():
        for start in range(0, len(group), batch_size):
            part = group[start : start + batch_size]
            inputs = processor(
                images=[example.picture for example in part],
                text=[make_prompt(example.question) for example in part],
                return_tensors="pt",
            )
            with torch.inference_mode():
                words = _choose_words(model, processor, inputs, method)
            found += zip(part, words, strict=True)
    return found


def _choose_words(model: Any, processor: Any, inputs: Any, method: Method | None) -> list[str]:
    if method is None:
        logits = model(**inputs, logits_to_keep=1).logits
    else:
        with tc.prune(model, method, processor=processor):
            logits = model(**inputs, logits_to_keep=1).logits
    return [PICTURE_WORDS[word] for word in logits[:, -1].argmax(-1).tolist()]


if __name__ == "__main__":
    main()
