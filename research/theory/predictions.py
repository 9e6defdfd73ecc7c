"""How well the theory tells on which questions pruning hurts.

    python -m research.theory.predictions --scenes 100 --budgets 64 32

Of the questions that the unpruned model answers correctly, which does it get wrong after MoB? For
each quantity of the paper this prints the area under the ROC curve (AUC): the chance that a
question which pruning hurts has a larger value than one which it does not, 0.5 if the quantity
tells nothing. Kinds of questions differ in both, so a second column compares questions of one kind
only. Intervals resample whole scenes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import tokencover as tc
from research.study.plan import make_tasks
from research.theory.pebble import CertifiedMoB
from tokencover.evaluation import Example, Task, VisionLanguageModel, load_model
from tokencover.statistics import Interval
from tokencover.theory import Certificate

Values = NDArray[np.float64]
DRAWS = 500
BATCH = 20

QUANTITIES: Mapping[str, Callable[[Certificate], float]] = {
    "eta, the coupling": lambda found: found.distances.coupling,
    "eps_p, radius of the prompt centres": lambda found: found.distances.prompt_radius,
    "eps_v, radius of the visual centres": lambda found: found.distances.visual_radius,
    "d_H(S, V)": lambda found: found.distances.kept_to_visual,
    "d_H(V + P, S + P)": lambda found: found.distances.pruned,
    "bound of Lemma 1": lambda found: found.distances.lemma1,
    "bound of Lemma 1, relaxed": lambda found: found.distances.relaxed,
    "effective dimension": lambda found: found.fit.dimension,
    "words of the prompt": lambda found: float(found.prompt_tokens),
}


def main() -> None:
    """Print a table for each budget."""
    options = _read_options()
    torch.set_num_threads(1)
    model = load_model(str(options.checkpoint) if options.checkpoint else "pebble")
    tasks = make_tasks("pebble", options.split, options.scenes)
    asked = [(task, example) for task in tasks for example in task.examples()]
    whole = _ask(model, asked)
    for budget in options.budgets:
        method = CertifiedMoB(budget)
        with tc.prune(model.model, method, processor=model.processor):
            pruned = _ask(model, asked)
        known = np.flatnonzero(whole == 1)
        hurt = pruned[known] < 1
        print(f"K = {budget}: of {len(known)} questions pruning hurts {hurt.sum()}")
        kinds = np.array([asked[place][0].name for place in known])
        scenes = np.array([asked[place][1].cluster for place in known])
        print(f"  {'':<37}{'AUC':<22}AUC within a kind")
        for name, read in QUANTITIES.items():
            values = np.array([read(method.certificates[place]) for place in known])
            among_all = measure_auc(values, hurt, np.zeros(len(known)), scenes)
            within = measure_auc(values, hurt, kinds, scenes)
            print(f"  {name:<37}{_show(among_all):<22}{_show(within)}", flush=True)


def _ask(model: VisionLanguageModel, asked: Sequence[tuple[Task, Example]]) -> Values:
    """Score every question: 1 is right."""
    scores: list[float] = []
    for first in range(0, len(asked), BATCH):
        batch = asked[first : first + BATCH]
        inputs = model.make_inputs([example for _, example in batch])
        answers = model.answer(inputs, max_new_tokens=4)
        pairs = zip(batch, answers, strict=True)
        scores += [task.score(answer, example) for (task, example), answer in pairs]
    return np.array(scores)


def measure_auc(
    values: Values, hurt: NDArray[np.bool_], kinds: NDArray[np.generic], scenes: NDArray[np.generic]
) -> Interval:
    """How well values tell what is hurt, among questions of one kind, with a bootstrap interval.

    Parameters
    ----------
    values
        One for each question.
    hurt
        Whether pruning hurts it.
    kinds
        Only questions of the same kind are compared.
    scenes
        Questions of one scene are drawn together.
    """
    rows = [np.flatnonzero(scenes == scene) for scene in np.unique(scenes)]
    random = np.random.default_rng(0)
    drawn = [
        np.concatenate([rows[pick] for pick in random.integers(len(rows), size=len(rows))])
        for _ in range(DRAWS)
    ]
    found = [compute_auc(values[each], hurt[each], kinds[each]) for each in drawn]
    known = [each for each in found if not math.isnan(each)]
    low, high = np.percentile(known, [2.5, 97.5]) if known else (math.nan, math.nan)
    return Interval(compute_auc(values, hurt, kinds), float(low), float(high))


def compute_auc(values: Values, hurt: NDArray[np.bool_], kinds: NDArray[np.generic]) -> float:
    """In how many pairs of a hurt and an unhurt question of one kind the hurt one has more.

    Equal values count half. NaN if there is no such pair.
    """
    wins = pairs = 0.0
    for kind in np.unique(kinds):
        mine = kinds == kind
        bad, good = values[mine & hurt], np.sort(values[mine & ~hurt])
        below = np.searchsorted(good, bad, "left")
        upto = np.searchsorted(good, bad, "right")
        wins += float((below + upto).sum()) / 2
        pairs += len(bad) * len(good)
    return wins / pairs if pairs else float("nan")


def _show(interval: Interval) -> str:
    if math.isnan(interval.mean):
        return "no pairs"
    return f"{interval.mean:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--checkpoint", type=Path, help="folder; by default the shipped model")
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--budgets", type=int, nargs="+", default=[64, 32])
    return parser.parse_args()


if __name__ == "__main__":
    main()
