"""Ablations among stored results: settings of MoB that differ in one thing only.

`tokencover ablate` evaluates such settings; wherever they were evaluated, they are found here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tokencover.budget import Split
from tokencover.evaluation.ablation import (
    AblationSetting,
    vary_folds,
    vary_layers,
    vary_prompt_budgets,
)
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.report.ablation_page import ABLATION_TITLES, Ablation, AblationName
from tokencover.evaluation.result_rows import ResultRow
from tokencover.evaluation.results import Results
from tokencover.methods import MoB

FEWEST_POINTS = 2
"""Of a curve."""


@dataclass(frozen=True, slots=True)
class StoredAblations:
    """What was found, None where nothing was.

    Attributes
    ----------
    prompt_budgets : Ablation or None
        Kp for each K: Figure 4.
    folds : Ablation or None
        k for each Kp: Figure 5, Table 6.
    layers : Ablation or None
        Blocks before pruning: Figure 6.
    """

    prompt_budgets: Ablation | None = None
    folds: Ablation | None = None
    layers: Ablation | None = None


def find_ablations(stored: Results) -> StoredAblations:
    """Look for settings of MoB that differ in Kp, in k or in the layer alone."""
    rows = {row.combination: row for row in stored.rows if row.summary is not None}
    methods = [each.method for each in rows if isinstance(each.method, MoB)]
    counted = [each for each in methods if isinstance(each.budget, int)]
    splits = {(each.budget, each.split) for each in counted if isinstance(each.split, Split)}
    pairs = sorted({(int(budget), split.prompt_budget) for budget, split in splits})
    folds = sorted({split.fold / split.prompt_budget for _, split in splits if split.prompt_budget})
    return StoredAblations(
        prompt_budgets=_collect(
            "k-prompt",
            [each for k, kp in pairs for each in vary_prompt_budgets([k], [kp / k])],
            stored,
            rows,
        ),
        folds=_collect(
            "fold",
            [each for k, kp in pairs if kp for each in vary_folds([k], folds, kp / k)],
            stored,
            rows,
        ),
        layers=_collect(
            "layer",
            vary_layers(
                sorted({each.budget for each in methods}),
                sorted({each.after for each in methods}),
            ),
            stored,
            rows,
        ),
    )


def _collect(
    name: AblationName,
    settings: Sequence[AblationSetting],
    stored: Results,
    rows: dict[Combination, ResultRow],
) -> Ablation | None:
    """Those that were evaluated, in curves of some points."""
    found = list(dict.fromkeys(each for each in settings if each.combination in rows))
    points = Counter(each.curve for each in found)
    found = [each for each in found if points[each.curve] >= FEWEST_POINTS]
    if not found:
        return None
    whole = Combination(None)
    known = {whole: ResultRow(whole, {}, None, None, None), **rows}
    title, axis = ABLATION_TITLES[name]
    return Ablation(title, axis, stored.title, tuple(found), known, dict(stored.groups))
