"""LaTeX of the paper's Table 7: ``python -m research.paper.tables > costs.tex``."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from research.paper.costs import PaperCost, compute_paper_costs
from tokencover.evaluation.report.latex_parts import GRAY, LatexBlock, wrap_blocks, write_row
from tokencover.evaluation.report.latex_tables import PACKAGES
from tokencover.evaluation.results_table import NOTHING

_TERA = 1e12


def make_cost_table() -> str:
    """The table for the paper's two models; nothing of it is measured."""
    blocks = []
    for model, found in groupby(compute_paper_costs(), key=lambda each: each.model):
        costs = list(found)
        names = [
            "Vanilla" if each.choosing is None else f"$K={each.budget}$" for each in costs
        ]  # fmt: skip
        heading = rf"{GRAY} \multicolumn{{{len(costs) + 1}}}{{c}}{{{model}}} \\"
        blocks.append(
            LatexBlock(
                heading,
                [
                    write_row(["", *names]),
                    _write_costs("Forward", costs, lambda each: each.true, ".1f"),
                    _write_costs("Compute $d_H$", costs, lambda each: each.coupling, ".1e"),
                    _write_costs("MoB", costs, lambda each: each.choosing, ".1e"),
                ],
            )
        )
    return wrap_blocks(
        blocks,
        header=[],
        columns="lcccc",
        caption="Computation cost in the LLaVA-7B series (T, 1e12), computed, not measured. "
        "Forward counts all tokens in the block before pruning, which the MoB paper leaves out; "
        "the others are multiply-adds.",
        label="tab:costs",
    )


def _write_costs(
    name: str, costs: list[PaperCost], find: Callable[[PaperCost], int | None], form: str
) -> str:
    values = [find(each) for each in costs]
    cells = [NOTHING if value is None else f"{value / _TERA:{form}}" for value in values]
    return write_row([name, *cells])


if __name__ == "__main__":
    print(PACKAGES, make_cost_table(), sep="\n\n")
