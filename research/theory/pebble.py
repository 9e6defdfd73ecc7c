"""Which inequalities of the paper hold for the tokens of a real model, Pebble.

    python -m research.theory.pebble --scenes 2 --budgets 128 64 32

Prunes with MoB after one block, certifies every cover, and prints means and how often each claim
held; then a Lipschitz estimate (from below) beside what pruning did to the answers.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import torch

import tokencover as tc
from research.theory.lipschitz import estimate_lipschitz
from tokencover.methods import Choice, View
from tokencover.theory import Certificate, certify
from tokencover_models.pebble.data import PictureExample, make_examples
from tokencover_models.pebble.model import make_prompt


@dataclass(frozen=True)
class CertifiedMoB(tc.MoB):
    """MoB that certifies each cover it chooses."""

    certificates: list[Certificate] = field(default_factory=list)

    def choose(self, view: View) -> Choice:
        """As MoB does."""
        choice = super().choose(view)
        for sample, details in enumerate(choice.details):
            cover = tc.Cover(details["prompt_centers"], details["visual_centers"])
            words = view.prompt[sample, view.prompt_mask[sample]]
            visual = view.hidden_states[sample, view.mask[sample]]
            self.certificates.append(certify(visual, words, cover))
        return choice


def main() -> None:
    """Print one block of lines for each budget."""
    options = _read_options()
    torch.set_num_threads(1)
    model, processor = tc.load_pebble()
    asked = list(make_examples("test", options.scenes))
    for budget in options.budgets:
        method = CertifiedMoB(budget)
        with torch.no_grad(), tc.prune(model, method, processor=processor):
            for example in asked:
                model(**_prepare_inputs(processor, example), use_cache=False)
        if options.show:
            print(method.certificates[0], "\n")
        _print_summary(budget, method.certificates)
        _print_lipschitz(model, processor, asked[:: options.every], budget)


def _prepare_inputs(processor: Any, example: PictureExample) -> dict[str, Any]:
    text, picture = make_prompt(example.question), example.picture
    return dict(processor(text=text, images=picture, return_tensors="pt"))


def _print_summary(budget: int, found: Sequence[Certificate]) -> None:
    far = [each.distances for each in found]
    print(f"K = {budget}, {len(found)} questions; means:")
    print(
        f"  eta {mean(d.coupling for d in far):.3f}  eps_p {mean(d.prompt_radius for d in far):.3f}"
        f"  eps_v {mean(d.visual_radius for d in far):.3f}"
        f"  d_H(S, V) {mean(d.kept_to_visual for d in far):.3f}"
    )
    print(
        f"  d_eff {mean(each.fit.dimension for each in found):.2f}"
        f"  error of its fit {mean(each.fit.error for each in found):.2f}"
    )
    print(
        f"  d_H(V + P, S + P) {mean(d.pruned for d in far):.3f}  Lemma 1 "
        f"{mean(d.lemma1 for d in far):.3f}  relaxed {mean(d.relaxed for d in far):.3f}"
    )
    held: Counter[str] = Counter()
    for each in found:
        first, second = each.theorem1, each.theorem2
        if first is None or second is None:
            continue
        held["covers"] += 1
        held["Theorem 1, D1 K^(-2/d)"] += first.budget_holds
        held["Theorem 1, (eta/z)^2"] += first.coupling_holds
        held["Theorem 2, eps_p"] += second.prompt_holds
        held["Theorem 2, eps_v"] += second.visual_holds
        held["Theorem 2, step b eps_p^-d >= Kp"] += second.step_holds
    print(f"  held, of {held.pop('covers')}:")
    for claim, count in held.items():
        print(f"    {claim:<36}{count:>6}")


def _print_lipschitz(
    model: Any, processor: Any, asked: Sequence[PictureExample], budget: int
) -> None:
    found = [
        estimate_lipschitz(
            model, _prepare_inputs(processor, example), tc.MoB(budget=budget), processor=processor
        )
        for example in asked
    ]
    largest = max(each.constant for each in found)
    moves = [move for each in found for move in each.pruned]
    beyond = sum(move.change > largest * move.distance for move in moves)
    print(
        f"  C >= {largest:.1f} from {len(found)} questions; pruning moved the logits by "
        f"{mean(move.change for move in moves):.2f}, C d_H is "
        f"{mean(largest * move.distance for move in moves):.2f}; {beyond} moved farther than that"
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--scenes", type=int, default=2, help="scenes of the test split")
    parser.add_argument("--budgets", type=int, nargs="+", default=[128, 64, 32])
    parser.add_argument("--every", type=int, default=7, help="estimate C on every n-th question")
    parser.add_argument("--show", action="store_true", help="print the first certificate")
    return parser.parse_args()


if __name__ == "__main__":
    main()
