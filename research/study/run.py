"""The study: all methods, costs counted three ways, three models of pebble's, videos, and boulder.

    python -m research.study.run --out results/study        # or: make study
    python -m research.study.run --judges boulder           # the deeper test model, hours more

Takes hours. What is done is kept, and the same command continues from there. Models that are
neither bundled nor in `research/seeds` are trained first. Then settings that depend on the depth of
the decoder are chosen on validation scenes, for all methods and models alike; then the test scenes
are asked. Of the bundled model times to the first token are measured too: nothing else must run
then.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import tokencover as tc
from research.pebble_training import run_training
from research.study.models import BOULDER, BUNDLED, CLIPS, USUAL, Judge, get_test_model
from research.study.plan import METHODS, MODES, list_specs, make_tasks, name_cost, set_budgets
from research.study.tables import write_tables
from research.twig.pebble import train_twig
from tokencover.budget import BudgetMode
from tokencover.errors import InputError, TokenCoverError
from tokencover.evaluation import Results, load_model
from tokencover.files import write_atomically
from tokencover.methods import Spec

TUNED_AT = name_cost(64)
Settings = Mapping[str, Mapping[str, Any]]
"""Of methods, by name, where they are others than the defaults."""


@dataclass(frozen=True)
class Asked:
    """One run: a judge is asked about scenes under some methods.

    Attributes
    ----------
    folder
        Where its results go.
    judge
        Who is asked.
    split, scenes
        What about.
    specs
        Methods with their budgets.
    every
        How many kinds of questions each scene is asked one of.
    timed
        Batches that measure the time to the first token; 0 for none.
    """

    folder: Path
    judge: Judge
    split: str
    scenes: int
    specs: tuple[Spec, ...]
    every: int = 2
    timed: int = 0

    def do(self, part: tuple[int, int] = (0, 1)) -> Results:
        """Do what is not done yet, or a part of it."""
        torch.set_num_threads(1)
        judge = self.judge
        return tc.evaluate(
            load_model(judge.model),
            methods=self.specs,
            tasks=make_tasks(judge.benchmark, self.split, self.scenes, self.every, judge.kinds),
            split=self.split,
            limit=self.scenes,
            batch_size=20,
            max_new_tokens=4,
            timing_batches=self.timed,
            out=self.folder,
            part=part,
        )


def main() -> None:
    """Run the study from where it stands."""
    options = _read_options()
    for judge in options.judges:
        prepared = _prepare(options, judge)
        settings = _add_twig(options, prepared, _choose_settings(options, prepared))
        for mode in options.modes:
            if mode in judge.costs:
                _ask(options, prepared, mode, settings)
        if options.timed and judge.name == BUNDLED:
            _measure_times(options, prepared, settings)
    print(write_tables(options.out, options.judges, options.modes))


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("results/study"), help="folder")
    parser.add_argument(
        "--judges", nargs="+", default=USUAL, help=f"seed0, seed1 ..., {CLIPS}, {BOULDER}"
    )
    parser.add_argument("--methods", nargs="+", default=METHODS, help="by default all")
    parser.add_argument("--modes", nargs="+", default=MODES, choices=MODES)
    parser.add_argument("--scenes", type=int, help="test scenes or videos of each, if not its own")
    parser.add_argument("--validation", type=int, help="those that settings are chosen with")
    parser.add_argument("--timed", type=int, default=5, help="batches that are timed, or 0")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    options = parser.parse_args()
    try:
        options.judges = [get_test_model(name) for name in options.judges]
    except InputError as error:
        parser.error(str(error))
    return options


# ---- models ---------------------------------------------------------------------------------


def _prepare(options: argparse.Namespace, judge: Judge) -> Judge:
    """A judge as the options have it; its model is trained if it is not there."""
    return replace(
        judge,
        model=_resolve_model(options, judge),
        methods=tuple(name for name in judge.methods if name in options.methods),
        scenes=judge.scenes if options.scenes is None else options.scenes,
        validation=judge.validation if options.validation is None else options.validation,
    )


def _resolve_model(options: argparse.Namespace, judge: Judge) -> str:
    if judge.seed is None or Path(judge.model).is_dir():
        return judge.model
    folder: Path = options.out / "models" / judge.name
    if not (folder / "checkpoint").is_dir():
        print(f"training the model of {judge.name}", flush=True)
        run_training(folder, seed=judge.seed, workers=options.workers, resume=True)
    return str(folder / "checkpoint")


def _add_twig(options: argparse.Namespace, judge: Judge, settings: Settings) -> Settings:
    """Settings with a twig for the model; it is trained if it is not there."""
    if "twigvlm" not in judge.methods:
        return settings
    if judge.model == "pebble":
        return {**settings, "twigvlm": {"weights": judge.model}}
    folder = options.out / "models" / f"{judge.name}-twig"
    if not (folder / "twig.json").exists():
        print(f"training a twig for {judge.name}", flush=True)
        train_twig(load_model(judge.model).model, folder)
    return {**settings, "twigvlm": {"weights": str(folder)}}


# ---- runs -----------------------------------------------------------------------------------


def _choose_settings(options: argparse.Namespace, judge: Judge) -> Settings:
    """For each method the settings that are best on validation scenes; the first of equals."""
    path = options.out / f"settings-{judge.name}.json"
    known: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    open_choices = {
        name: choices
        for name, choices in judge.choices.items()
        if name in judge.methods and name not in known
    }
    if not open_choices:
        return known
    amount = next(each for each in judge.build_amounts("flops") if each.cost == TUNED_AT)
    tried = {
        (name, place): {"method": name, **choice, "budget": amount.budget, "budget_mode": "flops"}
        for name, choices in open_choices.items()
        for place, choice in enumerate(choices)
    }
    folder = options.out / f"validation-{judge.name}"
    asked = Asked(folder, judge, "validation", judge.validation, tuple(tried.values()))
    rows = _do_in_parts(asked, options.workers).to_dicts()[1:]
    found = {key: row["accuracy"] for key, row in zip(tried, rows, strict=True)}
    chosen = {
        name: choices[_get_best([found[name, place] for place in range(len(choices))])]
        for name, choices in open_choices.items()
    }
    settings = {**known, **chosen}
    write_atomically(path, (json.dumps(settings, indent=1) + "\n").encode())
    return settings


def _get_best(scores: Sequence[float | None]) -> int:
    """The first of the best; None, which a method has that cannot run, is below all others."""
    known = [-1.0 if score is None else score for score in scores]
    return known.index(max(known))


def _ask(options: argparse.Namespace, judge: Judge, mode: BudgetMode, settings: Settings) -> None:
    amounts = judge.build_amounts(mode)
    specs = list_specs(judge.methods, settings, amounts)
    specs += [spec for spec in set_budgets(judge.also, amounts) if spec not in specs]
    name = f"{judge.name}-{mode}"
    print(f"{name}: {len(specs)} methods and budgets, {judge.scenes} scenes", flush=True)
    asked = Asked(options.out / name, judge, "test", judge.scenes, tuple(specs), judge.every[mode])
    _do_in_parts(asked, options.workers)


def _measure_times(options: argparse.Namespace, judge: Judge, settings: Settings) -> None:
    """At equal FLOPs. One process, one thread: nothing must run beside it."""
    amounts = [each for each in judge.build_amounts("flops") if each.cost == TUNED_AT]
    specs = tuple(list_specs(judge.methods, settings, amounts))
    Asked(options.out / "times", judge, "test", 20, specs, timed=options.timed).do()


def _do_in_parts(asked: Asked, workers: int) -> Results:
    """Do a run in several processes, then read all of it."""
    if workers == 1:
        return asked.do()
    context = multiprocessing.get_context("spawn")
    parts = [context.Process(target=asked.do, args=((part, workers),)) for part in range(workers)]
    for each in parts:
        each.start()
    for each in parts:
        each.join()
    if any(each.exitcode for each in parts):
        raise TokenCoverError(f"{asked.folder.name} did not end well: see above, then run it again")
    return asked.do()


if __name__ == "__main__":
    main()
