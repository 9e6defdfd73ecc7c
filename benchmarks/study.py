"""The study: all methods, costs counted three ways, three models of pebble's, clips, and boulder.

    python benchmarks/study.py --out results/study        # or: make study

Takes hours. What is done is kept, and the same command goes on from there. Models that are neither
bundled nor in `benchmarks/models` are trained first. Then settings that hang on the depth
of the decoder are chosen on validation scenes, for all methods and models alike; then the test
scenes are asked; last, times to the first token are measured, with nothing else running.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import tokencover as tc
from study_plan import (
    ALSO_OF_BOULDER,
    CHOICES,
    CHOICES_OF_BOULDER,
    COSTS_OF_BOULDER,
    EVERY,
    EVERY_OF_BOULDER,
    KINDS_OF_BOULDER,
    METHODS,
    METHODS_OF_BOULDER,
    MODES,
    SEEDS,
    Amount,
    find_amounts,
    list_specs,
    make_tasks,
    name_cost,
    set_budgets,
)
from study_tables import write_tables
from tokencover.budget import BudgetMode
from tokencover.errors import TokenCoverError
from tokencover.evaluation import Results, load_model
from tokencover.files import write_atomically
from tokencover.loading import BOULDER
from tokencover.methods import Spec
from tokencover.pebble.data import CLIP_TOKENS, PICTURE_TOKENS
from tokencover.pebble.training import run_training
from twig_pebble import train_twig

MODELS = Path(__file__).parent / "models"
"""Models of other training seeds than the bundled one's."""
BUNDLED = 1
CLIPS = "pebble-clips"
"""The bundled model for clips, and what it is asked."""
TUNED_AT = name_cost(64)


@dataclass(frozen=True)
class Asked:
    """One run: a model is asked about scenes under some methods.

    Attributes
    ----------
    folder
        Where its results go.
    model
        A bundled one's name, or where it lies.
    benchmark, split, scenes
        What it is asked.
    specs
        Methods with their budgets.
    every
        How many kinds of questions each scene is asked one of.
    timed
        Batches that measure the time to the first token; 0 for none.
    kinds
        Of questions; by default all of the benchmark's.
    """

    folder: Path
    model: str
    benchmark: str
    split: str
    scenes: int
    specs: tuple[Spec, ...]
    every: int = 2
    timed: int = 0
    kinds: tuple[str, ...] = ()

    def do(self, part: tuple[int, int] = (0, 1)) -> Results:
        """Do what is not done yet, or a part of it."""
        torch.set_num_threads(1)
        return tc.evaluate(
            load_model(self.model),
            methods=self.specs,
            data=make_tasks(self.benchmark, self.split, self.scenes, self.every, self.kinds),
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
    models = {seed: _find_model(options, seed) for seed in options.seeds}
    settings = {
        seed: _add_twig(options, _choose_settings(options, f"seed{seed}", model), seed, model)
        for seed, model in models.items()
    }
    for mode in options.modes:
        for seed, model in models.items():
            _ask(options, f"seed{seed}-{mode}", model, mode, settings[seed])
    if options.clips:
        of_clips = _choose_settings(options, "clips", CLIPS)
        for mode in options.modes:
            _ask(options, f"clips-{mode}", CLIPS, mode, of_clips)
    if options.timed and models:
        first = options.seeds[0]
        _measure_times(options, models[first], settings[first])
    if options.boulder:
        few = [name for name in METHODS_OF_BOULDER if name in options.methods]
        fewer = argparse.Namespace(**{**vars(options), "methods": few})
        _ask(fewer, f"{BOULDER}-flops", BOULDER, "flops", _choose_settings(fewer, BOULDER, BOULDER))
    print(write_tables(options.out, options.seeds, options.modes))


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("results/study"), help="folder")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help="by default all")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--scenes", type=int, default=100, help="test scenes")
    parser.add_argument(
        "--clips", type=int, default=40, help="test clips, or 0; half as many for settings"
    )
    parser.add_argument(
        "--boulder",
        type=int,
        default=0,
        help="test scenes that boulder is asked too (an hour more)",
    )
    parser.add_argument("--validation", type=int, default=40, help="scenes that settings need")
    parser.add_argument("--timed", type=int, default=5, help="batches that are timed, or 0")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    return parser.parse_args()


# ---- models ---------------------------------------------------------------------------------


def _find_model(options: argparse.Namespace, seed: int) -> str:
    """The model of a training seed; it is trained if it is not there."""
    if seed == BUNDLED:
        return "pebble"
    kept = MODELS / f"seed{seed}"
    if kept.is_dir():
        return os.path.relpath(kept)  # results name it, and are read elsewhere
    folder = options.out / "models" / f"seed{seed}"
    if not (folder / "checkpoint").is_dir():
        print(f"training the model of seed {seed}", flush=True)
        run_training(folder, seed=seed, workers=options.workers, resume=True)
    return str(folder / "checkpoint")


def _add_twig(
    options: argparse.Namespace, settings: Mapping[str, Any], seed: int, model: str
) -> dict[str, Any]:
    """Settings with a twig for the model; it is trained if it is not there."""
    if "twigvlm" not in options.methods:
        return dict(settings)
    if model == "pebble":
        return {**settings, "twigvlm": {"weights": model}}
    folder = options.out / "models" / f"seed{seed}-twig"
    if not (folder / "twig.json").exists():
        print(f"training a twig for the model of seed {seed}", flush=True)
        train_twig(load_model(model).model, folder)
    return {**settings, "twigvlm": {"weights": str(folder)}}


# ---- runs -----------------------------------------------------------------------------------


def _choose_settings(
    options: argparse.Namespace, name: str, model: str
) -> dict[str, dict[str, Any]]:
    """For each method the settings that are best on validation scenes; the first of equals."""
    path = options.out / f"settings-{name}.json"
    if path.exists():
        settings: dict[str, dict[str, Any]] = json.loads(path.read_text())
        return settings
    amount = next(each for each in _find_amounts(model, "flops") if each.cost == TUNED_AT)
    offered = CHOICES_OF_BOULDER if model == BOULDER else CHOICES
    choices_of = {name: offered[name] for name in offered if name in options.methods}
    tried = {
        (name, place): {"method": name, **choice, "budget": amount.budget, "budget_mode": "flops"}
        for name, choices in choices_of.items()
        for place, choice in enumerate(choices)
    }
    scenes = options.clips // 2 if model == CLIPS else options.validation
    folder, specs = options.out / f"validation-{name}", tuple(tried.values())
    asked = Asked(
        folder, model, _name_benchmark(model), "validation", scenes, specs, kinds=_list_kinds(model)
    )
    rows = _do_in_parts(asked, options.workers).to_dicts()[1:]
    found = {key: row["accuracy"] for key, row in zip(tried, rows, strict=True)}
    settings = {
        name: choices[_find_best([found[name, place] for place in range(len(choices))])]
        for name, choices in choices_of.items()
    }
    write_atomically(path, (json.dumps(settings, indent=1) + "\n").encode())
    return settings


def _name_benchmark(model: str) -> str:
    return CLIPS if model == CLIPS else "pebble"


def _list_kinds(model: str) -> tuple[str, ...]:
    return KINDS_OF_BOULDER if model == BOULDER else ()


def _find_best(scores: Sequence[float | None]) -> int:
    """The first of the best; None, which a method has that cannot run, is below all others."""
    known = [-1.0 if score is None else score for score in scores]
    return known.index(max(known))


def _ask(
    options: argparse.Namespace,
    name: str,
    model: str,
    mode: BudgetMode,
    settings: Mapping[str, Mapping[str, Any]],
) -> None:
    clips = model == CLIPS
    # Twigs are trained for pictures.
    methods = [name for name in options.methods if not (clips and name == "twigvlm")]
    amounts = _find_amounts(model, mode)
    specs = tuple(list_specs(methods, settings, amounts))
    if model == BOULDER:
        also = set_budgets(ALSO_OF_BOULDER, amounts)
        specs += tuple(spec for spec in also if spec not in specs)
    scenes = {CLIPS: options.clips, BOULDER: options.boulder}.get(model, options.scenes)
    print(f"{name}: {len(specs)} methods and budgets, {scenes} scenes", flush=True)
    folder, every = options.out / name, EVERY_OF_BOULDER if model == BOULDER else EVERY[mode]
    asked = Asked(
        folder,
        model,
        _name_benchmark(model),
        "test",
        scenes,
        specs,
        every,
        kinds=_list_kinds(model),
    )
    _do_in_parts(asked, options.workers)


def _measure_times(
    options: argparse.Namespace, model: str, settings: Mapping[str, Mapping[str, Any]]
) -> None:
    """At equal operations. One process, one thread: nothing must run beside it."""
    amounts = [each for each in _find_amounts(model, "flops") if each.cost == TUNED_AT]
    specs = tuple(list_specs(options.methods, settings, amounts))
    Asked(options.out / "times", model, "pebble", "test", 20, specs, timed=options.timed).do()


@cache
def _find_amounts(model: str, mode: BudgetMode) -> list[Amount]:
    total = CLIP_TOKENS if model == CLIPS else PICTURE_TOKENS
    amounts = find_amounts(load_model(model).model, mode, total)
    costs = COSTS_OF_BOULDER if model == BOULDER else [each.cost for each in amounts]
    return [each for each in amounts if each.cost in costs]


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
