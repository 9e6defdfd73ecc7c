"""List the files of tokencover that one image passes through, from `tc.prune` to the logits.

Profiles one `generate` of the bundled model under a method, after everything has been imported, and
prints the files whose functions ran, package by package, in the order of the first call, with the
number of calls::

    python tools/trace_the_path.py                    # tc.MoB(64)
    python tools/trace_the_path.py --method fastv
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from PIL import Image

import tokencover as tc
from tokencover.prompting import make_inputs

PACKAGE = Path(tc.__file__).parent
OUTSIDE_FUNCTIONS = {"<module>"}
"""Code that runs on import."""


def main() -> None:
    """Trace one answer and print the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--method", default="mob", help="see `tokencover methods` (default: mob)")
    parser.add_argument("--budget", type=int, default=64, help="visual tokens to keep")
    options = parser.parse_args()
    method = tc.get_method(options.method, budget=options.budget)
    print_path(trace_answer(method))


def trace_answer(method: tc.Method) -> Counter[Path]:
    """Count the calls of one answer of the bundled model about an image."""
    model, processor = tc.load_pebble()
    image = Image.linear_gradient("L").resize((336, 336)).convert("RGB")
    inputs = make_inputs(processor, [([image], "what is the most common color ?")])
    prompt = inputs.prompt_mask

    def answer() -> None:
        with torch.no_grad(), tc.prune(model, method, prompt=prompt):
            model.generate(**inputs, max_new_tokens=4, do_sample=False)

    answer()  # finish the imports on first use
    return count_calls(answer)


def count_calls(action: Callable[[], object]) -> Counter[Path]:
    """Count the calls of functions of each file of tokencover, in the order of the first call."""
    calls: Counter[Path] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in OUTSIDE_FUNCTIONS:
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE):
                calls[path.relative_to(PACKAGE)] += 1

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def print_path(calls: Counter[Path]) -> None:
    """Print one line per file, numbered in the order of the first call, and grouped by package."""
    order = {path: number for number, path in enumerate(calls, start=1)}
    packages: dict[str, list[Path]] = {}
    for path in calls:
        packages.setdefault(path.parts[0] if len(path.parts) > 1 else "(top)", []).append(path)
    for package, paths in packages.items():
        print(f"{package}: {len(paths)} files")
        for path in paths:
            print(f"  {order[path]:>3}  {path!s:<44} {calls[path]:>7} calls")
    print(f"\n{len(calls)} files from tc.prune to the logits")


if __name__ == "__main__":
    main()
