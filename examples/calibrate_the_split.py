"""Measure how strongly prompts and images are coupled, and let MoB split its budget by it.

    python examples/calibrate_the_split.py --scenes 12     a minute; the default shows that it runs

`tokencover calibrate` does the same for your own data, and can be interrupted.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import tokencover as tc
from tokencover.budget import Profile
from tokencover_models.pebble.data import make_examples

QUESTION_TYPES = ("color", "read", "common_color", "place")


def main() -> None:
    """Measure eta, look for two groups, and prune with the profile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=2)
    options = parser.parse_args()

    model, processor = tc.load("pebble")
    coupling: dict[str, list[float]] = defaultdict(list)
    for example in make_examples("validation", options.scenes, QUESTION_TYPES):
        inputs = tc.make_inputs(processor, [([example.picture], example.question)])
        with tc.prune(model, tc.MoB(budget=64), processor=processor) as run:
            model(**inputs, logits_to_keep=1)
        eta = run.trace[0].coupling
        if eta is not None:
            coupling[example.kind].append(eta)

    profile = Profile.of("pebble", after=1, coupling=coupling)
    profile.save("profile.json")
    for task in profile.tasks:
        print(f"{task.name}: {task.count} questions, eta {task.mean:.3f} ± {task.deviation:.3f}")
    print("two groups" if profile.separated else f"one group: {profile.objection}")

    method = tc.MoB(budget=64, split=tc.CouplingSplit("profile.json"))
    with tc.prune(model, method, processor=processor) as run:
        model.generate(**inputs, max_new_tokens=4)
    print(f"{run.trace[0].split} for {example.question!r}")


if __name__ == "__main__":
    main()
