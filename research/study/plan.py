"""What the study compares: methods, costs, what a cost counts, and what is asked.

A cost is named by K, the tokens that the paper's MoB keeps after one block: K = 64 is what that
costs. Methods are compared three ways at each: with K tokens left in the end, with the mean over
blocks that MoB has, and with the prefill FLOPs that MoB has. On a decoder of eleven
blocks the first one alone is most of that, so there are two lower costs of operations: those of 64
and of 32 tokens in every block, which only methods that begin before the decoder can reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tokencover.budget import BudgetMode
from tokencover.evaluation import Example, Task, load_tasks
from tokencover.families import compute_block_cost
from tokencover.methods import MoB, Spec

COSTS: Final = (192, 128, 64, 32)
LOWER: Final = (64, 32)
"""Tokens in every block."""
MODES: Final[tuple[BudgetMode, ...]] = ("flops", "exact", "layer_mean")
METHODS: Final = (
    "mob",
    "mob_stages",
    "nearest",
    "farthest",
    "random",
    "grid",
    "downsample",
    "fastv",
    "sparsevlm",
    "pyramiddrop",
    "dart",
    "tokencarve",
    "look_ahead",
    "twigvlm",
    "divprune",
    "cdpruner",
    "scope",
    "fastervlm",
    "visionzip",
    "hired",
    "prumerge",
    "prumerge+",
    "mustdrop",
    "tome",
    "ficoco_v",
)
CHOICES: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "mob": ({"after": 0}, {"after": 1}, {"after": 2}),
    "mob_stages": (
        {"folded": 0.3},
        {"folded": 0.3, "stages": (0, 3)},
        {"folded": 0.3, "stages": (0, 5)},
    ),
    "nearest": ({"after": 0}, {"after": 1}, {"after": 2}),
    "farthest": ({"after": 0}, {"after": 1}, {"after": 2}),
    "random": ({"after": 0}, {"after": 1}, {"after": 2}),
    "grid": ({"after": 0}, {"after": 1}, {"after": 2}),
    "fastv": ({"after": 1}, {"after": 2}, {"after": 3}),
    "dart": ({"after": 1}, {"after": 2}, {"after": 3}),
    "tokencarve": ({"after": 1}, {"after": 2}, {"after": 3}),
    "pyramiddrop": ({}, {"stages": (1, 3, 6)}, {"stages": (2, 4, 7)}),
    "sparsevlm": ({}, {"stages": (1, 3, 6)}, {"stages": (2, 4, 7)}),
    "look_ahead": ({}, {"after": 1, "layers": 1}, {"after": 1, "layers": 2}),
}
"""Settings that depend on the depth of a decoder: each method has the one that is best for it on
validation scenes at the FLOPs of K = 64, the first if they are equally good."""
EVERY: Final[dict[BudgetMode, int]] = {"flops": 4, "exact": 7, "layer_mean": 7}
"""Each scene is asked every fourth kind of question, or every seventh: a hundred scenes are 350
or 200 questions for each method and budget."""
OTHER_TOKENS: Final = 14
"""About so many tokens of a prompt are not visual."""


@dataclass(frozen=True)
class Amount:
    """A cost as one mode counts it: what `budget` and `budget_mode` are given."""

    cost: str
    mode: BudgetMode
    budget: int


def name_costs(mode: BudgetMode) -> tuple[str, ...]:
    """What the costs of a mode are called, high ones first."""
    lower = LOWER if mode == "flops" else ()
    return (*map(name_cost, COSTS), *(f"{tokens} everywhere" for tokens in lower))


def name_cost(kept: int) -> str:
    """What the cost is called at which the paper's MoB keeps so many tokens."""
    return f"K = {kept}"


def build_amounts(model: Any, mode: BudgetMode, total: int) -> list[Amount]:
    """The budgets at which MoB, as the paper has it, keeps K tokens, for each K; and lower ones.

    Parameters
    ----------
    model
        Whose decoder is pruned.
    mode
        What budgets count.
    total
        Its visual tokens.
    """
    decoder = model.model.language_model
    depth, cost = len(decoder.layers), compute_block_cost(decoder.layers, decoder.config)

    def compute_budget(kept: int) -> int:
        counts = MoB(kept).schedule(kept, total, depth)
        if mode == "exact":
            return kept
        if mode == "layer_mean":
            return round(sum(counts) / depth)
        spent = sum(float(cost.of(count + OTHER_TOKENS)) for count in counts)
        wasted = {
            each: abs(depth * float(cost.of(each + OTHER_TOKENS)) - spent) for each in range(total)
        }
        return min(wasted, key=wasted.__getitem__)

    budgets = [*map(compute_budget, COSTS), *(LOWER if mode == "flops" else ())]
    pairs = zip(name_costs(mode), budgets, strict=True)
    return [Amount(cost, mode, budget) for cost, budget in pairs]


def make_tasks(
    benchmark: str, split: str, scenes: int, every: int = 2, kinds: Sequence[str] = ()
) -> list[Task]:
    """Questions of all kinds, of which each scene is asked a part, in turn.

    Twice the scenes tell more than twice the questions about each: those of one scene hang
    together.

    Parameters
    ----------
    benchmark
        "pebble" or "pebble-videos".
    split, scenes
        Which scenes, and how many.
    every
        2 asks each scene every second kind.
    kinds
        Some of the benchmark's; by default all.
    """
    names = [f"{benchmark}/{kind}" for kind in kinds] or [benchmark]
    found = load_tasks(names, split=split, limit=scenes)
    return [_ask_some(task, place % every, every) for place, task in enumerate(found)]


def _ask_some(task: Task, turn: int, every: int) -> Task:
    def examples() -> Iterator[Example]:
        return (each for each in task.examples() if int(each.id) % every == turn)

    version = f"{task.version}, {turn + 1} of {every}"
    return replace(task, examples=examples, version=version, source="")


def list_specs(
    methods: Sequence[str], settings: Mapping[str, Mapping[str, Any]], amounts: Sequence[Amount]
) -> list[Spec]:
    """Every method at every budget, as `tokencover.evaluate` takes them.

    Parameters
    ----------
    methods
        By name.
    settings
        Of those that have others than their defaults.
    amounts
        The budgets.
    """
    named: list[Spec] = [{"method": name, **settings.get(name, {})} for name in methods]
    return set_budgets(named, amounts)


def set_budgets(specs: Sequence[Spec], amounts: Sequence[Amount]) -> list[Spec]:
    """Each method at each budget."""
    return [
        {**spec, "budget": amount.budget, "budget_mode": amount.mode}
        for amount in amounts
        for spec in specs
    ]
