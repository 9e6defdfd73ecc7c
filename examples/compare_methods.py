"""Compare methods at one budget on questions with known answers.

    python examples/compare_methods.py --scenes 10     some minutes; the default shows that it runs

`tokencover evaluate` does this for many budgets and tasks, with intervals, and can be interrupted.
"""

from __future__ import annotations

import argparse

import torch

import tokencover as tc
from tokencover_models.pebble.data import make_examples

QUESTION_TYPES = ("exist", "color", "read", "where", "common_color", "place")
NAMES = ("mob", "nearest", "farthest", "fastv", "divprune", "random")


def main() -> None:
    """Print one line per method."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=1)
    parser.add_argument("--budget", type=int, default=64)
    options = parser.parse_args()

    model, processor = tc.load("pebble")
    examples = list(make_examples("test", options.scenes, QUESTION_TYPES))
    inputs = tc.make_inputs(
        processor, [([example.picture], example.question) for example in examples]
    )
    length = inputs["input_ids"].shape[1]

    print(f"{'method':10} {'right':>7} {'mean tokens':>12} {'FLOPs':>11}")
    for name in NAMES:
        method = tc.get_method(name, budget=options.budget)
        with torch.inference_mode(), tc.prune(model, method, processor=processor) as run:
            tokens = model.generate(**inputs, max_new_tokens=4, do_sample=False)
        answers = processor.batch_decode(tokens[:, length:], skip_special_tokens=True)
        pairs = zip(answers, examples, strict=True)
        right = sum(answer.strip() == example.answer for answer, example in pairs)
        mean = sum(trace.mean_tokens for trace in run.trace) / len(run.trace)
        fraction = sum(trace.flops for trace in run.trace) / sum(
            trace.flops_unpruned for trace in run.trace
        )
        print(f"{name:10} {right:>3} / {len(examples)} {mean:12.1f} {fraction:11.0%}")


if __name__ == "__main__":
    main()
