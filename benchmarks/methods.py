"""Is every method at least as fast as its plain formulation? Ratios in one run.

    python benchmarks/methods.py                 N = 576 and 2880, some minutes on one core
    python benchmarks/methods.py --tokens 576    half a minute

The plain formulation is what the method does, written by us in a dozen lines of float32 and without
care for ties (`plain_choices.py`, `plain_merges.py`): it need not give the same on two machines.
Ours is exact and settles ties. CPU seconds are compared, turn by turn, so that a loaded machine
hits both. TwigVLM and look-ahead methods have no rows: they choose as FastV does, by another row of
attention.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

import tokencover as tc
from method_inputs import CROP, SIZES, Inputs
from plain_choices import (
    select_cdpruner,
    select_dart,
    select_divprune,
    select_fastervlm,
    select_fastv,
    select_hired,
    select_mob,
    select_prumerge,
    select_pyramiddrop,
    select_scope,
    select_tokencarve,
    select_visionzip,
)
from plain_merges import (
    choose_globalcom2,
    choose_mustdrop,
    merge_ficoco,
    merge_tome,
    recycle_sparsevlm,
)
from tokencover.methods import Method

Run = Callable[[], object]
SPARSEVLM_COUNTS = {576: (66, 16), 2880: (330, 77)}
"""Tokens and clusters that the first stage leaves, for K = 64 and 320."""
MUSTDROP_COUNTS = {576: 332, 2880: 1662}
"""Tokens that the first of four stages leaves."""


def run_choice(method: Method, inputs: Inputs) -> Run:
    """What a method does at its one place, or the first."""
    return partial(method.choose, inputs.show())


def run_sparsevlm(method: Method, inputs: Inputs) -> Run:
    """Raters before the decoder, and the first stage."""
    begin, stage = inputs.show(block=0), inputs.show(block=3)

    def run() -> None:
        notes: dict[str, object] = {}
        method.choose(replace(begin, notes=notes))
        method.choose(replace(stage, notes=notes))

    return run


def run_mustdrop(method: Method, inputs: Inputs) -> Run:
    """Windows in the vision encoder, and the first stage."""
    tower, stage = inputs.show_tower(1), inputs.show(block=3)

    def run() -> None:
        method.merge_in_vision_encoder(tower)
        method.choose(replace(stage, notes={}))

    return run


@dataclass(frozen=True)
class Pair:
    """A method, its plain formulation, and a function that runs the method."""

    make: Callable[[int], Method]
    plain: Callable[[Inputs], object]
    prepare: Callable[[Method, Inputs], Run] = run_choice
    slow: bool = False
    smallest: int = 0


PAIRS = {
    "MoB": Pair(tc.MoB, select_mob),
    "DivPrune": Pair(tc.DivPrune, select_divprune),
    "CDPruner": Pair(tc.CDPruner, select_cdpruner),
    "VisionZip": Pair(tc.VisionZip, select_visionzip),
    "FastV": Pair(tc.FastV, select_fastv),
    "FasterVLM": Pair(tc.FasterVLM, select_fastervlm),
    "HiRED": Pair(tc.HiRED, select_hired),
    "PruMerge": Pair(tc.PruMerge, select_prumerge),
    "PyramidDrop": Pair(
        lambda budget: tc.PyramidDrop(0.125, stages=(2, 8, 16)), select_pyramiddrop
    ),
    "DART": Pair(tc.DART, select_dart),
    "SCOPE": Pair(tc.SCOPE, select_scope, slow=True),
    "TokenCarve": Pair(tc.TokenCarve, select_tokencarve, slow=True),
    "SparseVLM": Pair(
        lambda budget: tc.SparseVLM(budget, budget_mode="published"),
        lambda inputs: recycle_sparsevlm(inputs, *SPARSEVLM_COUNTS[len(inputs.visual)]),
        run_sparsevlm,
    ),
    "MustDrop": Pair(
        tc.MustDrop,
        lambda inputs: choose_mustdrop(inputs, MUSTDROP_COUNTS[len(inputs.visual)]),
        run_mustdrop,
    ),
    "GlobalCom2": Pair(
        tc.GlobalCom2,
        choose_globalcom2,
        lambda method, inputs: partial(method.choose, inputs.show(tiled=True)),
        smallest=2880,
    ),
    "ToMe": Pair(
        tc.ToMe,
        merge_tome,
        lambda method, inputs: partial(method.merge_in_vision_encoder, inputs.show_tower(0)),
    ),
    "FiCoCo-V": Pair(
        tc.FiCoCoV,
        merge_ficoco,
        lambda method, inputs: partial(method.merge_in_vision_encoder, inputs.show_tower(12)),
    ),
}


def compare(pair: Pair, inputs: Inputs, repeats: int) -> tuple[float, float, float]:
    """CPU seconds of the plain formulation and of the method, and the median ratio."""
    run = pair.prepare(pair.make(inputs.budget), inputs)
    plain, ours = [], []
    for turn in range(repeats + 1):
        begin = time.process_time()
        pair.plain(inputs)
        middle = time.process_time()
        run()
        end = time.process_time()
        if turn or not repeats:  # the first turn warms up
            plain.append(middle - begin)
            ours.append(end - middle)
    ratio = statistics.median(a / b for a, b in zip(plain, ours, strict=True))
    return min(plain), min(ours), ratio


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, choices=list(SIZES), help="only this N")
    parser.add_argument("--methods", default=",".join(PAIRS), help=", ".join(PAIRS))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.methods.split(",")
    if not set(names) <= set(PAIRS):
        parser.error(f"--methods {arguments.methods}: choose from {', '.join(PAIRS)}")
    print(f"1 thread, float32, CPU time, median ratio of {arguments.repeats} turns\n")
    print("| method | N | K | plain ms | ours ms | faster |\n|" + "---|" * 6)
    with torch.no_grad():
        for tokens, budget in SIZES.items():
            if arguments.tokens not in (None, tokens):
                continue
            inputs = Inputs.draw(tokens, budget)
            for name in names:
                if tokens < PAIRS[name].smallest:
                    continue
                large = PAIRS[name].slow and tokens > CROP
                found = compare(PAIRS[name], inputs, 0 if large else arguments.repeats)
                plain, ours, ratio = found
                print(
                    f"| {name} | {tokens} | {budget} | {1e3 * plain:.1f} | {1e3 * ours:.1f} "
                    f"| {ratio:.2f}x |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
