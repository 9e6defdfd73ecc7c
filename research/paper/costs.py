"""The paper's Table 7, computed: the cost of selecting tokens next to the forward pass.

``python -m research.paper.costs`` prints it next to the paper's numbers, ``--json`` for programs.

The printed cells of all forward passes equal, to the last digit, the rule of thumb "two FLOPs per
parameter and token" with seven billion parameters and K + L tokens in all 32 layers. Our count
agrees within 5 % if it counts the same: a head that runs for every token, and only the pairs of
tokens that causal attention uses. Both ignore that the layers before the pruning one process all
N + L tokens; `true` does not.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Final

from tokencover.budget import LayerCost
from tokencover.efficiency.workload import PrefillCost
from tokencover.tables import TextTable, print_table

TERA: Final = 1e12
RULE_OF_THUMB: Final = 2 * 7_000_000_000
"""Operations for each token of a model with seven billion parameters."""


@dataclass(frozen=True, slots=True)
class DecoderDimensions:
    """The shape of a Llama-like decoder; `feed_forward` is the inner width of the gated network."""

    blocks: int
    width: int
    feed_forward: int
    heads: int
    key_value_heads: int
    head_width: int
    vocabulary: int

    @property
    def cost(self) -> PrefillCost:
        """The FLOPs of a model of this shape."""
        queries = self.heads * self.head_width
        keys = self.key_value_heads * self.head_width
        # Queries and output, keys and values; gate, up and down.
        weights = 2 * self.width * (queries + keys) + 3 * self.width * self.feed_forward
        block = LayerCost(linear=2 * weights, quadratic=2 * 2 * queries)
        return PrefillCost(block, self.blocks, head=2 * self.width * self.vocabulary)


VICUNA_7B: Final = DecoderDimensions(
    blocks=32,
    width=4096,
    feed_forward=11008,
    heads=32,
    key_value_heads=32,
    head_width=128,
    vocabulary=32000,
)
"""The decoder of LLaVA-1.5-7B and LLaVA-Next-7B."""


def limit_to_visible_pairs(cost: LayerCost) -> LayerCost:
    """Count only the pairs of tokens that causal attention uses.

    These are n * (n + 1) / 2 of the n * n pairs: half of the quadratic part becomes linear.
    """
    half = Fraction(cost.quadratic) / 2
    return LayerCost(linear=cost.linear + half, quadratic=half)


@dataclass(frozen=True, slots=True)
class PrintedColumn:
    """A column of the paper's Table 7, in its unit, 1e12.

    Attributes
    ----------
    forward : float
        Operations of the forward pass.
    coupling, choosing : float or None
        Multiply-adds of the Hausdorff distance and of MoB; None where the table has no number.
    """

    forward: float
    coupling: float
    choosing: float | None


@dataclass(frozen=True, slots=True)
class PaperModel:
    """One half of the table.

    Attributes
    ----------
    name : str
        As the table calls it.
    visual, prompt : int
        N and L.
    decoder : DecoderDimensions
        Its shape; d is the width.
    printed : dict
        The columns by K; N is the column "Vanilla".
    """

    name: str
    visual: int
    prompt: int
    decoder: DecoderDimensions
    printed: dict[int, PrintedColumn]


TABLE_7: Final = (
    PaperModel(
        "LLaVA-1.5-7B",
        visual=576,
        prompt=10,
        decoder=VICUNA_7B,
        printed={
            576: PrintedColumn(8.2, 2.3e-5, None),
            64: PrintedColumn(1.0, 2.3e-5, 1.7e-4),
            128: PrintedColumn(1.9, 2.3e-5, 3.3e-4),
            192: PrintedColumn(2.8, 2.3e-5, 4.8e-4),
        },
    ),
    PaperModel(
        "LLaVA-Next-7B",
        visual=2880,
        prompt=10,
        decoder=VICUNA_7B,
        printed={
            2880: PrintedColumn(40.5, 1.2e-4, None),
            320: PrintedColumn(4.6, 1.2e-4, 3.9e-3),
            640: PrintedColumn(9.1, 1.2e-4, 7.6e-3),
            960: PrintedColumn(13.6, 1.2e-4, 1.1e-2),
        },
    ),
)


@dataclass(frozen=True, slots=True)
class PaperCost:
    """One column of the table, printed and computed.

    Attributes
    ----------
    model : str
        Its name.
    budget : int
        K; N where nothing is pruned.
    printed : PrintedColumn
        What the paper says.
    rule_of_thumb : int
        Operations of the forward pass by the rule of thumb.
    forward : int
        Operations of the forward pass by our model, with K + L tokens in all blocks.
    true : int
        The same with N + L tokens in the blocks before the pruning one.
    coupling, choosing : int
        Multiply-adds of the Hausdorff distance, N * L * d, and of MoB, N * (L + K) * d.
    """

    model: str
    budget: int
    printed: PrintedColumn
    rule_of_thumb: int
    forward: int
    true: int
    coupling: int
    choosing: int | None

    @property
    def share(self) -> float:
        """Choosing and Hausdorff distance, as a fraction of the true cost of the pruned pass."""
        return 2 * (self.coupling + (self.choosing or 0)) / self.true


def _count_coupling_multiply_adds(visual: int, prompt: int, width: int) -> int:
    """N * L * d, for Algorithm 2."""
    return visual * prompt * width


def _count_choosing_multiply_adds(visual: int, prompt: int, budget: int, width: int) -> int:
    """N * (L + K) * d, for Algorithm 1."""
    return visual * (prompt + budget) * width


def compute_paper_costs(table: Sequence[PaperModel] = TABLE_7, after: int = 1) -> list[PaperCost]:
    """Compute every column.

    Parameters
    ----------
    table : sequence of PaperModel
        What to compute.
    after : int
        How many blocks run on all tokens, for the true cost; 1 is the paper's formula.
    """
    return [_compute_column(model, budget, after) for model in table for budget in model.printed]


def _compute_column(model: PaperModel, budget: int, after: int) -> PaperCost:
    blocks, width = model.decoder.blocks, model.decoder.width
    cost = model.decoder.cost
    seen = replace(cost, layer=limit_to_visible_pairs(cost.layer))
    short, whole = budget + model.prompt, model.visual + model.prompt
    pruned = budget < model.visual
    return PaperCost(
        model=model.name,
        budget=budget,
        printed=model.printed[budget],
        rule_of_thumb=RULE_OF_THUMB * short,
        forward=seen.of([short] * blocks, predicted=short),
        true=seen.of([whole] * after + [short] * (blocks - after), predicted=short),
        coupling=_count_coupling_multiply_adds(model.visual, model.prompt, width),
        choosing=_count_choosing_multiply_adds(model.visual, model.prompt, budget, width)
        if pruned
        else None,
    )


def tabulate_paper_costs(costs: Sequence[PaperCost]) -> TextTable:
    """The table for people; T is 1e12."""
    header = (
        "model", "K", "forward T", "printed", "thumb T", "true T",
        "d_H T", "printed", "MoB T", "printed", "choosing / true",
    )  # fmt: skip
    rows = [
        (
            each.model,
            "all" if each.choosing is None else str(each.budget),
            f"{each.forward / TERA:.2f}",
            f"{each.printed.forward:.1f}",
            f"{each.rule_of_thumb / TERA:.1f}",
            f"{each.true / TERA:.2f}",
            f"{each.coupling / TERA:.2e}",
            f"{each.printed.coupling:.1e}",
            "-" if each.choosing is None else f"{each.choosing / TERA:.2e}",
            "-" if each.printed.choosing is None else f"{each.printed.choosing:.1e}",
            "-" if each.choosing is None else f"{100 * each.share:.3f} %",
        )
        for each in costs
    ]
    notes = (
        "forward: K + L tokens in all blocks, as the paper counts; thumb: 2 * 7e9 * (K + L)",
        "true: N + L tokens in the block before pruning; what a pruned prefill really costs",
        "d_H, MoB: multiply-adds, N * L * d and N * (L + K) * d; their share counts both as two",
    )
    return TextTable(header, rows, notes=notes)


def export_paper_costs(costs: Sequence[PaperCost]) -> list[dict[str, Any]]:
    """The table for machines."""
    return [{**asdict(each), "share": each.share} for each in costs]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The paper's Table 7, computed.")
    parser.add_argument("--json", action="store_true", help="Print JSON instead of a table.")
    options = parser.parse_args(arguments)
    costs = compute_paper_costs()
    if options.json:
        print(json.dumps(export_paper_costs(costs), indent=1))
    else:
        print_table(tabulate_paper_costs(costs))


if __name__ == "__main__":
    main()
