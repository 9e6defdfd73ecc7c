"""The paper's ablations of MoB's settings, for any model and tasks.

`vary_prompt_budgets` is the paper's Figure 4, `vary_folds` its Figure 5 and Table 6, `vary_layers`
its Figure 6. Each lists settings of MoB in curves; `measure` returns their accuracies.
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
from tokencover.evaluation.scoring import ResultRow
from tokencover.methods import MoB
from tokencover.statistics import Interval, find_mean_score

PROMPT_SHARES: Final = tuple(eighth / 8 for eighth in range(9))
"""Kp / K."""
FOLD_SHARES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""k / Kp: the columns of the paper's Table 6 with a fold."""


@dataclass(frozen=True)
class AblationSetting:
    """One point of a curve: its x, its name in tables, and the setting of MoB."""

    curve: str
    x: float
    name: str
    method: MoB

    @property
    def combination(self) -> Combination:
        """The setting as a unit of evaluation."""
        return Combination(self.method)


@dataclass(frozen=True)
class MeasuredSetting:
    """A setting with its mean accuracy on some tasks, and its FLOPs as a fraction of unpruned."""

    setting: AblationSetting
    accuracy: Interval
    flops: float


def vary_prompt_budgets(
    budgets: Sequence[Budget], shares: Sequence[float]
) -> list[AblationSetting]:
    """List several Kp for each K, from fractions Kp / K.

    The fold follows Kp as in the paper's table without a prior.
    """
    settings = []
    for budget in map(_check_count, budgets):
        for prompt_budget in _round_counts(shares, budget, least=0):
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
    """List several k for each <K, Kp>, from fractions k / Kp; `prompt_share` is Kp / K."""
    settings = []
    for budget in map(_check_count, budgets):
        (prompt_budget,) = _round_counts([prompt_share], budget, least=1)
        for fold in _round_counts(shares, prompt_budget, least=1):
            split = Split(prompt_budget, budget - prompt_budget, fold)
            curve = f"K = {budget}, Kp = {prompt_budget}"
            method = MoB(budget, split=split)
            name = f"{curve}, k = {fold} ({fold / prompt_budget:.1%})"
            settings.append(AblationSetting(curve, fold / prompt_budget, name, method))
    return settings


def vary_layers(budgets: Sequence[Budget], after: Sequence[int]) -> list[AblationSetting]:
    """List several pruning layers for each K."""
    return [
        AblationSetting(
            f"K = {budget}", layer, f"K = {budget}, after {layer}", MoB(budget, after=layer)
        )
        for budget in budgets
        for layer in sorted(set(after))
    ]


def choose_layers(num_layers: int) -> list[int]:
    """Return the default pruning layers: the first ones, then eighths of the depth."""
    return sorted({*range(min(4, num_layers)), *(num_layers * part // 8 for part in range(1, 8))})


def measure(
    settings: Sequence[AblationSetting], rows: Mapping[Combination, ResultRow], tasks: Sequence[str]
) -> dict[str, list[MeasuredSetting]]:
    """Return mean accuracies on some tasks by curve, without settings that could not run."""
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


def mean_relative_slope(xs: Sequence[float], values: Sequence[float]) -> float | None:
    """The paper's measure of how intense a trade-off is, in percent per unit of ascending `xs`.

    ``100 / (x_n - x_1) * sum_i (y_{i+1} - y_i) / y_i``; None where it is not defined: for fewer
    than two points, or if a value other than the last is 0.
    """
    if len(xs) != len(values):
        raise InputError(f"{len(xs)} x need as many values, got {len(values)}.")
    if any(right <= left for left, right in pairwise(xs)):
        raise InputError(f"x must ascend, got {list(xs)}.")
    if len(xs) < 2 or 0 in values[:-1]:
        return None
    changes = ((after - before) / before for before, after in pairwise(values))
    return 100 / (xs[-1] - xs[0]) * sum(changes)


def _check_count(budget: Budget) -> int:
    if isinstance(budget, float):
        raise InputError(
            f"this ablation divides a budget into counts of tokens, and needs one like 64; got the "
            f"fraction {budget}."
        )
    return budget


def _round_counts(shares: Sequence[float], whole: int, *, least: int) -> list[int]:
    """Different counts, ascending, nearest to fractions of a whole."""
    if wrong := [share for share in shares if not 0 <= share <= 1]:
        raise InputError(f"a fraction must be between 0 and 1, got {wrong[0]}.")
    return sorted({max(least, round_half_up(whole * Fraction(share))) for share in shares})
