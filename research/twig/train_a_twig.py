"""Train a twig for TwigVLM on the bundled model, and prune with it.

    python -m research.twig.train_a_twig --steps 300     some minutes; the default only shows it

Use your own data the same way: inputs of the model's forward, with labels on the answers only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor

import tokencover as tc
from research.twig.training import TrainingSettings, train
from tokencover.twig import save_twig
from tokencover_models.pebble.data import make_examples

QUESTION_TYPES = ("color", "read", "common_color")
IGNORED = -100


def main() -> None:
    """Train a twig, save it, and prune with it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--out", default="twig", help="folder for the twig")
    options = parser.parse_args()

    model, processor = tc.load("pebble")
    settings = TrainingSettings(options.steps, after=2, depth=1, rate=1e-3)
    twig = train(model, make_batches(processor), settings, report=report)
    save_twig(twig, options.out)

    example = next(iter(make_examples("test", 1, QUESTION_TYPES)))
    inputs = tc.make_inputs(processor, [([example.picture], example.question)])
    method = tc.TwigVLM(budget=64, weights=options.out)
    with tc.prune(model, method, processor=processor) as run:
        tokens = model.generate(**inputs, max_new_tokens=4, do_sample=False)
    words = processor.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    print(f"{example.question} {words.strip()} (expected: {example.answer})")
    print(f"visual tokens per layer: {run.trace[0].tokens_per_layer}")


def make_batches(processor: Any) -> Iterator[Mapping[str, Tensor]]:
    """Yield batches of questions with answers, one scene per batch, endlessly."""
    for number in count(1):
        examples = list(make_examples("validation", number, QUESTION_TYPES))[-len(QUESTION_TYPES) :]
        prompts = tc.make_inputs(
            processor, [([example.picture], example.question) for example in examples]
        )
        answers = [
            processor.tokenizer(example.answer, add_special_tokens=False)["input_ids"]
            for example in examples
        ]
        longest = max(map(len, answers))
        padded = [
            ids + [processor.tokenizer.pad_token_id] * (longest - len(ids)) for ids in answers
        ]
        labels = [ids + [IGNORED] * (longest - len(ids)) for ids in answers]
        present = [[1] * len(ids) + [0] * (longest - len(ids)) for ids in answers]
        yield {
            "pixel_values": prompts["pixel_values"],
            "input_ids": torch.cat([prompts["input_ids"], torch.tensor(padded)], 1),
            "attention_mask": torch.cat([prompts["attention_mask"], torch.tensor(present)], 1),
            "labels": torch.cat(
                [torch.full_like(prompts["input_ids"], IGNORED), torch.tensor(labels)], 1
            ),
        }


def report(step: int, loss: float) -> None:
    """Print the loss of a step."""
    print(f"step {step}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
