"""Prune boulder with a few methods: what answers are left, relative to the whole picture.

The LoRA is merged first, so that what runs is the stock LLaVA.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

import tokencover as tc
from answer_tables import Cells, average_kinds, compare_tables, make_table
from boulder.assembly import Boulder, assemble
from tokencover.methods import Method
from tokencover.pebble.data import PICTURE_TOKENS, PictureExample, make_examples
from tokencover.pebble.model import normalise_pictures

METHODS: Final[dict[str, type[Any]]] = {
    "MoB": tc.MoB,
    "FastV": tc.FastV,
    "DivPrune": tc.DivPrune,
    "DART": tc.DART,
    "random": tc.Random,
}


def answer(boulder: Boulder, example: PictureExample) -> str:
    """The first word that the stock model says."""
    config = boulder.llava.config
    asked = boulder.encode(" " + example.question)
    picture = [config.image_token_index] * PICTURE_TOKENS
    tokens = torch.tensor([[config.text_config.bos_token_id, *picture, *asked]])
    with torch.inference_mode():
        logits = boulder.llava(
            input_ids=tokens,
            attention_mask=torch.ones_like(tokens),
            pixel_values=normalise_pictures([example.picture]),
            logits_to_keep=1,
        ).logits
    said: str = boulder.tokenizer.decode(logits[0, -1].argmax())
    return said.strip()


def fill_table(
    boulder: Boulder,
    examples: Sequence[PictureExample],
    method: Method | None,
    kinds: Sequence[str],
) -> Cells:
    """Answer everything, pruned by a method or not at all."""
    if method is None:
        return make_table([(each, answer(boulder, each)) for each in examples], kinds)
    with tc.prune(boulder.llava, method):
        return make_table([(each, answer(boulder, each)) for each in examples], kinds)


def main() -> None:
    """Print a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, default=Path("runs/boulder/base"))
    parser.add_argument("--state", type=Path, default=Path("runs/boulder/state.pt"))
    parser.add_argument("--scenes", type=int, default=40)
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--kinds", nargs="+", default=["exist", "color", "shape", "read"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    boulder = assemble(arguments.base)
    boulder.load(arguments.state)
    boulder.lora.merge_and_unload()
    kinds: list[str] = arguments.kinds
    examples = list(make_examples("validation", arguments.scenes, kinds))
    whole = fill_table(boulder, examples, None, kinds)
    print(f"unpruned {100 * average_kinds(whole):.1f} of {len(examples)} questions", flush=True)
    for name, make in METHODS.items():
        cells = fill_table(boulder, examples, make(arguments.budget), kinds)
        less = compare_tables(whole, cells)
        print(
            f"{name} {100 * average_kinds(cells):.1f}, relative "
            f"{100 * average_kinds(cells) / average_kinds(whole):.1f}, loses "
            f"{100 * less.mean:.1f} [{100 * less.low:.1f}, {100 * less.high:.1f}]",
            flush=True,
        )


if __name__ == "__main__":
    main()
