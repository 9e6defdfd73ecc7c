"""How far kept sets move when a selection computes in half precision, as released code does.

    python benchmarks/half_precision.py          some seconds

Tokens of rank 64 with 1 % of noise, rounded to the dtype first, so that both sides see the same
values; then the plain formulation of each method in that dtype, against ours, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

import tokencover as tc
from method_inputs import Inputs
from tokencover.methods import BudgetedMethod

Plain = Callable[[Tensor, Tensor, int], list[int]]
SAMPLES = 5
SIZES = [(576, 64), (576, 192)]


def choose_by_diversity(visual: Tensor, prompt: Tensor, budget: int) -> list[int]:
    """DivPrune, in the dtype of the tokens."""
    unit = torch.nn.functional.normalize(visual, dim=-1)
    distance = 1 - unit @ unit.T
    nearest = distance.clone().fill_diagonal_(math.inf)
    chosen = [int(nearest.amin(0).argmax())]
    while len(chosen) < budget:
        reach = distance[chosen].amin(0).index_fill(0, torch.tensor(chosen), -math.inf)
        chosen.append(int(reach.argmax()))
    return chosen


def choose_by_volume(visual: Tensor, prompt: Tensor, budget: int) -> list[int]:
    """CDPruner's: products in the dtype of the tokens, the loop in float32, as its code has it."""
    unit = torch.nn.functional.normalize(visual, dim=-1)
    mean = torch.nn.functional.normalize(prompt.mean(0), dim=-1)
    relevance = (unit @ mean).float()
    relevance = (relevance - relevance.min()) / (relevance.max() - relevance.min())
    kernel = relevance.unsqueeze(1) * (unit @ unit.T).float() * relevance
    gain = kernel.diagonal().clone()
    factor = torch.zeros(budget, len(gain))
    chosen: list[int] = []
    for step in range(budget):
        pick = int(gain.argmax())
        row = kernel[pick] - factor[:step, pick] @ factor[:step]
        factor[step] = row / gain[pick].clamp(min=1e-9).sqrt()
        gain = gain - factor[step].square()
        gain[pick] = -math.inf
        chosen.append(pick)
    return chosen


def main() -> None:
    """Print the table."""
    pairs: dict[str, tuple[type[BudgetedMethod], Plain]] = {
        "DivPrune": (tc.DivPrune, choose_by_diversity),
        "CDPruner": (tc.CDPruner, choose_by_volume),
    }
    print("| method | N | K | dtype | kept by both |\n|---|---|---|---|---|")
    for (name, (make, plain)), (tokens, budget) in (
        (pair, size) for pair in pairs.items() for size in SIZES
    ):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            shares = []
            for sample in range(SAMPLES):
                drawn = Inputs.draw(tokens, budget, seed=sample).to(dtype)
                ours = set(make(budget).choose(drawn.show()).kept[0].tolist())
                theirs = set(plain(drawn.visual, drawn.prompt, budget))
                shares.append(len(ours & theirs) / budget)
            share = 100 * sum(shares) / SAMPLES
            print(
                f"| {name} | {tokens} | {budget} | {str(dtype)[6:]} | {share:.1f} % |", flush=True
            )


if __name__ == "__main__":
    main()
