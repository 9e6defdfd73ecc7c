"""Does pruning last? Thousands of rounds, and threads, on the tiny models of the tests.

    python benchmarks/endurance.py                    10,000 rounds
    python benchmarks/endurance.py --rounds 500

A round prunes a model, generates, and takes the pruning off again, over every method on every
family that it runs on. Words must be those of the first time, to the bit, and nothing may be left
on the model. The memory of the process may not grow. Then eight threads share one pruned model and
four prune one model each: their logits must be those of one thread, to the bit. Prints one line
for each part and fails if one does not hold. Run from the repository: the models are in tests/zoo.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, logging

import tokencover as tc
from tokencover.errors import InputError
from tokencover.families import family_of, list_claims
from tokencover.methods import METHODS, Method

sys.path.append(str(Path(__file__).parents[1]))

from tests.pruning.test_prune import fingerprint
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry

BUDGET = 9
GROWTH = 16.0
"""How many MiB the resident size may grow from the first tenth of the rounds to the last."""
NEVER = 10**6  # no token ends the text
KINDS = ("single", "ragged", "two_images")
SHARED = ("llava", "llava_next", "internvl")
"""Families whose models remember nothing between calls; the Qwens keep positions of a prompt."""


@dataclass(frozen=True)
class Case:
    """A method on a model, and a batch for it."""

    entry: ZooEntry
    model: PreTrainedModel
    method: Method
    inputs: Inputs

    def prune(self) -> Any:
        """Pruning that knows the prompt tokens."""
        return tc.prune(self.model, self.method, prompt=self.entry.user_words(self.inputs))

    def generate(self) -> Tensor:
        """The words and the logits behind them, in one tensor."""
        call: Any = self.model.generate
        found = call(
            **self.inputs, max_new_tokens=2, do_sample=False, eos_token_id=NEVER,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        return torch.cat([found.sequences.flatten(), *(each.flatten() for each in found.logits)])

    def run(self) -> Tensor:
        """One round."""
        with self.prune():
            return self.generate()


def list_methods(model: PreTrainedModel) -> list[Method]:
    """Every method that runs on a model, with one budget."""
    family, found = family_of(model), []
    for kind in METHODS:
        claim = next((each for each in list_claims(kind) if each.family is family), None)
        if claim is None:
            continue
        make: Any = kind
        options = {} if claim.as_published else {"positions": "original"}
        try:
            found.append(make(BUDGET, **options))
        except (InputError, TypeError):  # asks for weights, or for more than a budget
            continue
    return found


def list_kinds(entry: ZooEntry, kinds: Sequence[str] = KINDS) -> list[str]:
    """Those kinds of batch that there are for a family."""
    return [kind for kind in kinds if kind in entry.kinds]


def make_cases(names: Sequence[str], kinds: Sequence[str] = KINDS) -> list[Case]:
    """Every family with every method that runs on it; those that refuse the tiny models are out."""
    cases = []
    for name in names:
        entry, model = ZOO[name], ZOO[name].build()
        for number, method in enumerate(list_methods(model)):
            own = list_kinds(entry, kinds)
            inputs = entry.inputs(own[number % len(own)])
            case = Case(entry, model, method, inputs)
            try:
                case.run()
            except InputError:
                continue
            cases.append(case)
    return cases


def read_memory() -> float:
    """The resident size of this process, in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(cases: Sequence[Case], rounds: int, bound: float = GROWTH) -> str:
    """Prune, generate and remove again and again."""
    expected = [case.run() for case in cases]
    models = {id(case.model): case.model for case in cases}
    before = {key: fingerprint(model) for key, model in models.items()}
    memory: list[float] = []
    every = max(1, rounds // 100)
    begin = time.perf_counter()
    gc.collect()
    gc.freeze()  # what is there stays, and need not be looked through each time
    try:
        for number in range(rounds):
            case = cases[number % len(cases)]
            where = f"round {number}, {case.method} on {case.entry.name}"
            if not torch.equal(case.run(), expected[number % len(cases)]):
                raise SystemExit(f"{where}: other words than the first time")
            if fingerprint(case.model) != before[id(case.model)]:
                raise SystemExit(f"{where}: something is left on the model")
            if number % every == 0:
                memory.append(read_memory())
    finally:
        gc.unfreeze()
    tenth = max(1, len(memory) // 10)
    first, last = mean(memory[:tenth]), mean(memory[-tenth:])
    seconds = time.perf_counter() - begin
    line = (
        f"rounds: {rounds} over {len(cases)} pairs of method and family in {seconds:.0f} s; words "
        f"equal, nothing left; resident {first:.1f} MiB in the first tenth, {last:.1f} in the last "
        f"(may grow by {bound:g})"
    )
    if last - first > bound:
        raise SystemExit(f"{line}: it grew too much")
    return line


def run_together(works: Sequence[Callable[[], object]]) -> None:
    """Run each in a thread of its own; the first error of any is thrown here."""
    errors: list[BaseException] = []

    def guard(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # thrown again below
            errors.append(error)

    threads = [threading.Thread(target=guard, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def repaint(case: Case, number: int) -> Case:
    """The same batch with other images."""
    pixels = case.inputs["pixel_values"] * (1 + 0.1 * number) - 0.05 * number
    return replace(case, inputs={**case.inputs, "pixel_values": pixels})


def share_a_model(cases: Sequence[Case], threads: int, repeats: int) -> str:
    """Threads on one pruned model at the same time, each with images of its own."""
    for case in cases:
        own = [repaint(case, number) for number in range(threads)]
        with case.prune():
            expected = [each.generate() for each in own]
            found: list[list[Tensor]] = [[] for _ in own]

            def work(number: int, own: Any = own, found: Any = found) -> None:
                found[number].extend(own[number].generate() for _ in range(repeats))

            run_together([lambda n=number: work(n) for number in range(threads)])  # type: ignore[misc]
        for number, results in enumerate(found):
            if not all(torch.equal(each, expected[number]) for each in results):
                raise SystemExit(f"threads: {case.method} on {case.entry.name} differs in one")
    return (
        f"{threads} threads on one pruned model: {len(cases)} pairs of method and family, "
        f"{repeats} texts each; equal to one thread to the bit"
    )


def use_several_models(cases: Sequence[Case], threads: int, repeats: int) -> str:
    """Threads that each prune a model of their own, again and again."""
    names = list(dict.fromkeys(case.entry.name for case in cases))[:threads]
    expected = {id(case): case.run() for case in cases}
    done: list[str] = []

    def work(name: str) -> None:
        own = [case for case in cases if case.entry.name == name]
        for case in own:
            for _ in range(repeats):
                if not torch.equal(case.run(), expected[id(case)]):
                    raise SystemExit(f"threads: {case.method} on {name} differs")
                done.append(name)

    run_together([lambda n=name: work(n) for name in names])  # type: ignore[misc]
    return (
        f"{len(names)} threads on different models ({', '.join(names)}): {len(done)} rounds; equal "
        "to one thread to the bit"
    )


def main() -> None:
    """Print a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3, help="texts of a thread and case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.set_verbosity_error()  # some families say the same with every text
    cases = make_cases(list(ZOO))
    print(soak(cases, arguments.rounds), flush=True)
    shared = [case for case in cases if case.entry.name in SHARED]
    print(share_a_model(shared, 8, arguments.repeats), flush=True)
    four = [case for case in cases if case.entry.name in list(ZOO)[:4]]
    print(use_several_models(four, 4, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
