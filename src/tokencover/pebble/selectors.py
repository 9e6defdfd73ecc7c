"""The five simple ways to choose tokens that the benchmark is checked with."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tokencover.budget import paper_split
from tokencover.covering import mob
from tokencover.errors import InputError
from tokencover.pebble.probing import Selector
from tokencover.pebble.scene import GRID

METHODS = ("random", "grid", "farthest", "nearest", "mob")


def make_selector(
    method: str, budget: int, prompt_budget: int | None = None, fold: int | None = None
) -> Selector:
    """Make a way to choose `budget` tokens.

    Parameters
    ----------
    method
        ``"random"``, ``"grid"`` (evenly over the picture), ``"farthest"`` (farthest-point
        sampling alone), ``"nearest"`` (nearest to any word of the question) or ``"mob"``.
    budget
        How many tokens to keep.
    prompt_budget, fold
        Of MoB; by default the paper's split for the budget.
    """
    if method == "random":
        return _random(budget)
    if method == "grid":
        return lambda visual, prompt: _grid(budget)
    if method == "farthest":
        return _covering(budget, 0, 1)
    if method == "nearest":
        return _covering(budget, budget, budget)
    if method == "mob":
        split = paper_split(budget, GRID * GRID)
        part = split.prompt_budget if prompt_budget is None else prompt_budget
        return _covering(budget, part, split.fold if fold is None else fold)
    raise InputError(f"no method is called {method!r}; choose from {METHODS}")


def _covering(budget: int, prompt_budget: int, fold: int) -> Selector:
    def select(visual: Tensor, prompt: Tensor) -> Tensor:
        cover = mob(visual, prompt, budget=budget, prompt_budget=prompt_budget, fold=fold)
        if isinstance(cover, list):
            raise InputError("a selector sees one picture at a time, got a batch")
        return cover.indices

    return select


def _random(budget: int) -> Selector:
    rng = torch.Generator().manual_seed(budget)
    return lambda visual, prompt: torch.randperm(len(visual), generator=rng)[:budget]


def _grid(budget: int) -> Tensor:
    """Tokens at even steps: rows and columns as near to a square lattice as the budget allows."""
    rows = max(1, round(math.sqrt(budget)))
    counts = [budget // rows + (index < budget % rows) for index in range(rows)]
    chosen = []
    for index, count in enumerate(counts):
        row = int((index + 0.5) * GRID / rows)
        chosen += [row * GRID + int((step + 0.5) * GRID / count) for step in range(count)]
    return torch.tensor(chosen)
