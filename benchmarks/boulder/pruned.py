"""Prune boulder with a few methods: what answers are left, relative to the whole picture.

The LoRA is merged first, so that what runs is the stock LLaVA.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

import tokencover as tc
from answer_tables import Cells, average_kinds, compare_tables, make_table
from boulder.assembly import Boulder, assemble, see
from boulder.part_lessons import write_question
from boulder.question_trees import grow_tree, read_trees
from tokencover.methods import Method
from tokencover.pebble.data import PICTURE_TOKENS, PictureExample, Question, make_examples
from tokencover.pebble.model import normalise_pictures

KINDS: Final = ("exist", "color", "shape", "read", "animal_color")
METHODS: Final[dict[str, Callable[[int], Method]]] = {
    "MoB": tc.MoB,
    "FastV": tc.FastV,
    "DivPrune": tc.DivPrune,
    "DART": tc.DART,
    "random": tc.Random,
    "FastV-15": partial(tc.FastV, after=15),  # half-way: late enough to have read the question
}


def read_stock(boulder: Boulder, example: PictureExample) -> Tensor:
    """What the stock model thinks of every word as the answer's first, shape (words,)."""
    config = boulder.llava.config
    asked = boulder.encode(" " + example.question)
    picture = [config.image_token_index] * PICTURE_TOKENS
    tokens = torch.tensor([[config.text_config.bos_token_id, *picture, *asked]])
    with torch.inference_mode():
        logits: Tensor = boulder.llava(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            pixel_values=normalise_pictures([example.picture]),
            logits_to_keep=1,
        ).logits
    return logits[0, -1]


def read_together(boulder: Boulder, examples: Sequence[PictureExample]) -> Tensor:
    """The same for all questions about one picture, unpruned, in one pass."""
    texts = [
        write_question(boulder, Question(each.kind, each.question, each.answer))
        for each in examples
    ]
    tree = grow_tree(texts)
    with torch.inference_mode():
        features = see(boulder.llava, normalise_pictures([examples[0].picture]))
        visual = boulder.llava.model.multi_modal_projector(features)
        patches = torch.arange(PICTURE_TOKENS)[None]
        return read_trees(boulder.llava, visual, patches, PICTURE_TOKENS, [tree])[tree.judged]


def mark_question(tokens: Tensor, visual: Tensor) -> Tensor:
    """The question is all text but the token that begins it."""
    words = ~visual
    words[:, 0] = False
    return words


def read_all(
    boulder: Boulder, examples: Sequence[PictureExample], method: Method | None
) -> Iterator[Tensor]:
    """Answer everything, pruned by a method or not at all."""
    if method is None:
        for _, group in groupby(examples, key=lambda each: each.scene_id):
            yield from read_together(boulder, list(group))
        return
    with tc.prune(boulder.llava, method, prompt=mark_question):
        for example in examples:
            yield read_stock(boulder, example)


def fill_table(
    boulder: Boulder,
    examples: Sequence[PictureExample],
    method: Method | None,
    kinds: Sequence[str],
) -> Cells:
    """Right or wrong, per scene and kind."""
    said = [boulder.tokenizer.decode(each.argmax()) for each in read_all(boulder, examples, method)]
    replies = zip(examples, said, strict=True)
    return make_table([(example, word.strip()) for example, word in replies], kinds)


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, default=Path("runs/boulder/base"))
    parser.add_argument("--state", type=Path, default=Path("runs/boulder/state.pt"))
    parser.add_argument("--scenes", type=int, default=40)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--kinds", nargs="+", default=[*KINDS])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    boulder = assemble(arguments.base)
    boulder.load(arguments.state)
    boulder.lora.merge_and_unload()
    kinds: list[str] = arguments.kinds
    examples = list(make_examples("validation", arguments.scenes, kinds))
    first = [each for each in examples if each.scene_id == examples[0].scene_id]
    apart = torch.stack([read_stock(boulder, each) for each in first])
    gap = float((apart - read_together(boulder, first)).abs().max())
    print(f"stock forward and training's differ by {gap:.1e} at most", flush=True)
    whole = fill_table(boulder, examples, None, kinds)
    print(f"unpruned {100 * average_kinds(whole):.1f} of {len(examples)} questions", flush=True)
    for name in arguments.methods:
        cells = fill_table(boulder, examples, METHODS[name](arguments.budget), kinds)
        less = compare_tables(whole, cells)
        print(
            f"{name} {100 * average_kinds(cells):.1f}, relative "
            f"{100 * average_kinds(cells) / average_kinds(whole):.1f}, loses "
            f"{100 * less.mean:.1f} [{100 * less.low:.1f}, {100 * less.high:.1f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
