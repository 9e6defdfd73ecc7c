"""The paper's Table 6 from an ablation of the covering fold."""

from __future__ import annotations

from collections.abc import Sequence

from tokencover.evaluation.ablation import MeasuredSetting
from tokencover.evaluation.report.ablation_page import Ablation
from tokencover.evaluation.report.latex_parts import (
    GRAY,
    LatexBlock,
    wrap_blocks,
    write_cell,
    write_row,
)
from tokencover.evaluation.results_table import NOTHING, Rank, format_percent
from tokencover.evaluation.table_formats import escape_latex


def make_fold_tables(ablation: Ablation | None) -> list[str]:
    """One table, with a block for all tasks, each group and each task; none without an ablation."""
    if ablation is None:
        return []
    folds = sorted({_find_fold(each.method.split) for each in ablation.settings})
    columns = len(folds) + 1
    heading = write_row([r"$\langle K, K_{\rm p}\rangle$", *(f"${fold}$" for fold in folds)])
    blocks = [
        LatexBlock(
            rf"{GRAY} \multicolumn{{{columns}}}{{c}}{{{escape_latex(name)}}} \\",
            [_write_curve(each, folds) for each in curves.values()],
        )
        for name, curves in ablation.curves.items()
    ]
    return [
        wrap_blocks(
            blocks,
            header=[heading],
            columns="l" + "c" * len(folds),
            caption=f"Ablation on the covering fold k of {ablation.model}: accuracy in percent. "
            "Blue and orange mark the best and the second of a row.",
            label="tab:folds",
        )
    ]


def _write_curve(curve: Sequence[MeasuredSetting], folds: Sequence[int]) -> str:
    split = curve[0].setting.method.split
    budget = curve[0].setting.method.budget
    texts = {
        _find_fold(each.setting.method.split): format_percent(each.accuracy.mean) for each in curve
    }
    ordered = sorted(set(texts.values()), key=float, reverse=True)
    ranks = dict(zip(ordered, (Rank.BEST, Rank.SECOND), strict=False)) if ordered[1:] else {}
    cells = [
        write_cell(texts[fold], ranks.get(texts[fold], Rank.NONE)) if fold in texts else NOTHING
        for fold in folds
    ]
    prompt_budget = getattr(split, "prompt_budget", NOTHING)
    return write_row([rf"$\langle {budget}, {prompt_budget}\rangle$", *cells])


def _find_fold(split: object) -> int:
    fold: int = getattr(split, "fold", 0)
    return fold
