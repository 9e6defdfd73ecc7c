"""LaTeX of the paper's Tables 6 and 7.

``python -m research.paper.tables --ablation FOLDER --costs > tables.tex`` writes Table 6 from the
``--out`` of ``tokencover ablate --what fold``, and Table 7, which is computed for LLaVA-7B.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from research.paper.costs import PaperCost, compute_paper_costs
from tokencover.errors import InputError
from tokencover.evaluation import read_folder
from tokencover.evaluation.ablation import MeasuredSetting
from tokencover.evaluation.columns import NOTHING, Rank, format_percent
from tokencover.evaluation.formats import escape_latex
from tokencover.evaluation.report import Ablation, collect_ablations
from tokencover.evaluation.report.latex import (
    GRAY,
    PACKAGES,
    wrap_blocks,
    write_cell,
    write_row,
)

TERA = 1e12


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ablation", type=Path, help="Results with several folds, for Table 6.")
    parser.add_argument("--costs", action="store_true", help="Write Table 7.")
    options = parser.parse_args(arguments)
    parts = [PACKAGES]
    if options.ablation is not None:
        inner = options.ablation / "results"
        folds = collect_ablations(read_folder(inner if inner.is_dir() else options.ablation)).folds
        if folds is None:
            raise InputError(f"{options.ablation} has no results of MoB with several folds.")
        parts.append(make_fold_table(folds))
    if options.costs:
        parts.append(make_cost_table())
    print("\n\n".join(parts))


def make_fold_table(ablation: Ablation) -> str:
    """Return Table 6, with a block for all tasks, each group and each task."""
    folds = sorted({_get_fold(setting.method.split) for setting in ablation.settings})
    columns = len(folds) + 1
    heading = write_row([r"$\langle K, K_{\rm p}\rangle$", *(f"${fold}$" for fold in folds)])
    blocks = [
        [
            rf"{GRAY} \multicolumn{{{columns}}}{{c}}{{{escape_latex(name)}}} \\",
            *(_write_curve(curve, folds) for curve in curves.values()),
        ]
        for name, curves in ablation.curves.items()
    ]
    return wrap_blocks(
        blocks,
        header=[heading],
        columns="l" + "c" * len(folds),
        caption=f"Ablation on the covering fold k of {ablation.model}: accuracy in percent. "
        "Blue and orange mark the best and the second of a row.",
        label="tab:folds",
    )


def make_cost_table() -> str:
    """Return Table 7 for the paper's two models; nothing of it is measured."""
    blocks = []
    for model, group in groupby(compute_paper_costs(), key=lambda cost: cost.model):
        costs = list(group)
        names = ["Vanilla" if cost.choosing is None else f"$K={cost.budget}$" for cost in costs]
        heading = rf"{GRAY} \multicolumn{{{len(costs) + 1}}}{{c}}{{{model}}} \\"
        blocks.append(
            [
                heading,
                write_row(["", *names]),
                _write_costs("Forward", costs, lambda cost: cost.true, ".1f"),
                _write_costs("Compute $d_H$", costs, lambda cost: cost.coupling, ".1e"),
                _write_costs("MoB", costs, lambda cost: cost.choosing, ".1e"),
            ]
        )
    return wrap_blocks(
        blocks,
        header=[],
        columns="lcccc",
        caption="Computation cost in the LLaVA-7B series (T, 1e12), computed, not measured. "
        "Forward counts all tokens in the layer before pruning, which the MoB paper leaves out; "
        "the others are multiply-adds.",
        label="tab:costs",
    )


def _write_curve(curve: Sequence[MeasuredSetting], folds: Sequence[int]) -> str:
    split = curve[0].setting.method.split
    budget = curve[0].setting.method.budget
    texts = {
        _get_fold(each.setting.method.split): format_percent(each.accuracy.mean) for each in curve
    }
    ordered = sorted(set(texts.values()), key=float, reverse=True)
    ranks = dict(zip(ordered, (Rank.BEST, Rank.SECOND), strict=False)) if ordered[1:] else {}
    cells = [
        write_cell(texts[fold], ranks.get(texts[fold], Rank.NONE)) if fold in texts else NOTHING
        for fold in folds
    ]
    prompt_budget = getattr(split, "prompt_budget", NOTHING)
    return write_row([rf"$\langle {budget}, {prompt_budget}\rangle$", *cells])


def _write_costs(
    name: str, costs: list[PaperCost], get: Callable[[PaperCost], int | None], form: str
) -> str:
    values = [get(cost) for cost in costs]
    cells = [NOTHING if value is None else f"{value / TERA:{form}}" for value in values]
    return write_row([name, *cells])


def _get_fold(split: object) -> int:
    fold: int = getattr(split, "fold", 0)
    return fold


if __name__ == "__main__":
    main()
