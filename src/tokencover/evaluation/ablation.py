"""What MoB's settings do: the paper's ablations, for any model and tasks.

`vary_prompt_budgets` is the paper's Figure 4, `vary_folds` its Figure 5 and Table 6, `vary_layers`
its Figure 6. Each gives settings of MoB in curves; `measure` gives their accuracies once they are
evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Final

from tokencover.budget import NO_PRIOR, Budget, Split, round_half_up
from tokencover.errors import InputError
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.result_rows import ResultRow
from tokencover.methods import MoB
from tokencover.statistics import Interval, find_mean_score

PROMPT_SHARES: Final = tuple(place / 8 for place in range(9))
"""Kp / K."""
FOLD_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""k / Kp: the filled columns of the paper's Table 6, but for the one without a fold."""


@dataclass(frozen=True)
class AblationSetting:
    """One point of a curve.

    Attributes
    ----------
    curve : str
        Which one.
    x : float
        Where on the horizontal axis.
    name : str
        What tables call it.
    method : MoB
        The setting itself.
    """

    curve: str
    x: float
    name: str
    method: MoB

    @property
    def combination(self) -> Combination:
        """As the evaluation has it."""
        return Combination(self.method)


@dataclass(frozen=True)
class MeasuredSetting:
    """A setting with what came of it on some tasks.

    Attributes
    ----------
    setting : AblationSetting
        What was tried.
    accuracy : Interval
        Mean over tasks, between 0 and 1.
    flops : float
        Operations of the prefill as a share of those without pruning, mean over all tasks.
    """

    setting: AblationSetting
    accuracy: Interval
    flops: float


def vary_prompt_budgets(
    budgets: Sequence[Budget], shares: Sequence[float]
) -> list[AblationSetting]:
    """For each K, several Kp; the fold follows Kp as in the paper's table without a prior.

    Parameters
    ----------
    budgets : sequence of int
        K.
    shares : sequence of float
        Kp / K.
    """
    settings = []
    for budget in map(_check_count, budgets):
        for prompt_budget in _find_counts(shares, budget, least=0):
            fold = max(1, round_half_up(prompt_budget * NO_PRIOR.fold_fraction))
            split = Split(prompt_budget, budget - prompt_budget, fold)
            name = f"K = {budget}, Kp = {prompt_budget} ({prompt_budget / budget:.0%})"
            settings.append(
                AblationSetting(f"K = {budget}", prompt_budget, name, MoB(budget, split=split))
            )
    return settings


def vary_folds(
    budgets: Sequence[Budget], shares: Sequence[float], prompt_share: float = 0.5
) -> list[AblationSetting]:
    """For each <K, Kp>, several k.

    Parameters
    ----------
    budgets : sequence of int
        K.
    shares : sequence of float
        k / Kp.
    prompt_share : float
        Kp / K.
    """
    settings = []
    for budget in map(_check_count, budgets):
        (prompt_budget,) = _find_counts([prompt_share], budget, least=1)
        for fold in _find_counts(shares, prompt_budget, least=1):
            split = Split(prompt_budget, budget - prompt_budget, fold)
            curve = f"K = {budget}, Kp = {prompt_budget}"
            method = MoB(budget, split=split)
            name = f"{curve}, k = {fold} ({fold / prompt_budget:.1%})"
            settings.append(AblationSetting(curve, fold / prompt_budget, name, method))
    return settings


def vary_layers(budgets: Sequence[Budget], after: Sequence[int]) -> list[AblationSetting]:
    """For each K, pruning after several numbers of decoder blocks."""
    return [
        AblationSetting(
            f"K = {budget}", place, f"K = {budget}, after {place}", MoB(budget, after=place)
        )
        for budget in budgets
        for place in sorted(set(after))
    ]


def choose_layers(depth: int) -> list[int]:
    """Numbers of blocks worth trying: the first ones, then eighths of the depth."""
    return sorted({*range(min(4, depth)), *(depth * part // 8 for part in range(1, 8))})


def measure(
    settings: Sequence[AblationSetting], rows: Mapping[Combination, ResultRow], tasks: Sequence[str]
) -> dict[str, list[MeasuredSetting]]:
    """Accuracies on some tasks, by curve; a setting that could not run is left out.

    Parameters
    ----------
    settings : sequence of AblationSetting
        What was tried.
    rows : mapping
        What came of it.
    tasks : sequence of str
        Which tasks; they count the same.
    """
    curves: dict[str, list[MeasuredSetting]] = {}
    for setting in settings:
        row = rows[setting.combination]
        if row.summary is None or row.summary.flops is None:
            continue
        accuracy = find_mean_score([row.records[task] for task in tasks])
        if accuracy is not None:
            measured = MeasuredSetting(setting, accuracy, row.summary.flops)
            curves.setdefault(setting.curve, []).append(measured)
    return curves


def mean_relative_slope(places: Sequence[float], values: Sequence[float]) -> float | None:
    """The paper's measure of how intense a trade-off is, in percent per unit of `places`.

    ``100 / (x_n - x_1) * sum_i (y_{i+1} - y_i) / y_i``; None where it is not defined: for fewer
    than two points, or if a value other than the last is 0.

    Parameters
    ----------
    places : sequence of float
        x, ascending.
    values : sequence of float
        y.
    """
    if len(places) != len(values):
        raise InputError(f"{len(places)} places need as many values, got {len(values)}.")
    if any(right <= left for left, right in pairwise(places)):
        raise InputError(f"places must ascend, got {list(places)}.")
    if len(places) < 2 or 0 in values[:-1]:
        return None
    changes = ((after - before) / before for before, after in pairwise(values))
    return 100 / (places[-1] - places[0]) * sum(changes)


def _check_count(budget: Budget) -> int:
    if isinstance(budget, float):
        raise InputError(
            f"this ablation divides a budget into counts of tokens, so it needs one like 64; "
            f"got the share {budget}."
        )
    return budget


def _find_counts(shares: Sequence[float], whole: int, *, least: int) -> list[int]:
    """Different counts, ascending, that come nearest to shares of a whole."""
    if wrong := [share for share in shares if not 0 <= share <= 1]:
        raise InputError(f"a share lies between 0 and 1, got {wrong[0]}.")
    return sorted({max(least, round_half_up(whole * Fraction(share))) for share in shares})
