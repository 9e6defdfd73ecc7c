"""Do the inequalities of Theorems 1 and 2 hold? A search that is the same on every run.

    python -m research.theory.counterexample

Part 1 tries every small case on a circle for ``eps_p * eps_v >= (eta / z)**2`` (Theorem 1), part 2
prints counter-examples with room to spare, part 3 counts how often each claim holds for covers
chosen by MoB from random tokens.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

import torch
from torch import Tensor

import tokencover as tc
from tokencover.theory import Certificate, certify

Places = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Places on the circle: the image, the words, and the two tokens that are kept."""

    visual: Places
    prompt: Places
    prompt_center: int
    visual_center: int
    limit: float
    """The radius eta / z."""


class Circle:
    """Evenly spaced points on the unit circle, and their distances."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._chord = [2 * math.sin(math.pi * gap / steps) for gap in range(steps)]

    def point(self, place: int) -> tuple[float, float]:
        """Its coordinates."""
        angle = 2 * math.pi * place / self.steps
        return math.cos(angle), math.sin(angle)

    def distance(self, first: int, second: int) -> float:
        """Straight, not along the arc."""
        return self._chord[(first - second) % self.steps]

    def hausdorff(self, first: Places, second: Places) -> float:
        """By the definition."""
        forth = max(min(self.distance(a, b) for b in second) for a in first)
        back = max(min(self.distance(a, b) for a in first) for b in second)
        return max(forth, back)

    def half_gaps(self, points: Places) -> list[float]:
        """``[j]``: supremum of the radii at which j balls or more are needed, by a packing of j."""
        best = [math.inf, math.inf]
        for count in range(2, len(points) + 1):
            gaps = (
                min(self.distance(a, b) for a, b in combinations(chosen, 2))
                for chosen in combinations(points, count)
            )
            best.append(max(gaps) / 2)
        return best

    def smallest_radius(self, visual: Places, prompt: Places, budget: int) -> float:
        """The radius eta / z for the smallest admissible z."""
        words, picture = self.half_gaps(prompt), self.half_gaps(visual)
        crowded = [
            min(words[part], picture[budget + 1 - part])
            for part in range(1, budget + 1)
            if part < len(words) and budget + 1 - part < len(picture)
        ]
        return min(self.hausdorff(visual, prompt), max(crowded, default=0.0))


def list_cases(circle: Circle) -> Iterator[Case]:
    """Three tokens of which two are kept, one or two words; the first token is at place 0."""
    words = [(a,) for a in range(circle.steps)] + list(combinations(range(circle.steps), 2))
    for pair in combinations(range(1, circle.steps), 2):
        visual = (0, *pair)
        for prompt in words:
            limit = circle.smallest_radius(visual, prompt, budget=2)
            for first, second in permutations(visual, 2):
                yield Case(visual, prompt, first, second, limit)


def search(circle: Circle) -> None:
    """Part 1."""
    checked = violated = neither = 0
    worst, example = math.inf, None
    for case in list_cases(circle):
        prompt_radius = circle.hausdorff((case.prompt_center,), case.prompt)
        visual_radius = circle.hausdorff((case.visual_center,), case.visual)
        if min(prompt_radius, visual_radius, case.limit) == 0:
            continue
        checked += 1
        neither += max(prompt_radius, visual_radius) < case.limit - 1e-12
        ratio = prompt_radius * visual_radius / case.limit**2
        violated += ratio < 1 - 1e-9
        if ratio < worst - 1e-9:
            worst, example = ratio, case
    print(f"circle of {circle.steps} places, 3 tokens, 2 kept, 1 or 2 words: {checked} cases")
    print(f"  eps_p * eps_v < (eta/z)^2, against Theorem 1: {violated}")
    print(f"  both radii < eta/z, against what its proof shows: {neither}")
    print(f"  smallest eps_p * eps_v / (eta/z)^2: {worst:.4f}, {example}")


def make_counterexample() -> tuple[Tensor, Tensor, tc.Cover]:
    """Three nearly equal patches, two words on either side of them; one patch is dropped."""
    tilt = 0.001
    visual = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, tilt], [1.0, 0.0, -tilt]])
    prompt = torch.tensor([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])
    return visual, prompt, tc.Cover(torch.tensor([1]), torch.tensor([0]))


def make_counterexample_to_theorem2() -> tuple[Tensor, Tensor, tc.Cover]:
    """Two patches near the words, twelve far away: MoB's visual centres are all among those."""
    angles = torch.cat([torch.tensor([0.0, 0.001]), 1.5 + 0.02 * torch.arange(12)])
    visual = torch.stack([angles.cos(), angles.sin()], dim=1)
    prompt = torch.tensor([[1.0, 0.0], [1.0, 0.3]])
    cover = tc.mob(visual, prompt, budget=7, prompt_budget=1, fold=1)
    assert isinstance(cover, tc.Cover)  # one sample
    return visual, prompt, cover


def sweep(samples: int) -> Counter[str]:
    """Part 3: how often each claim held for covers by MoB."""
    held: Counter[str] = Counter()
    for seed in range(samples):
        found = _certify_random_cover(seed)
        first, second = found.theorem1, found.theorem2
        if first is None or second is None:
            continue
        held["covers"] += 1
        held["Theorem 1, D1 K^(-2/d)"] += first.budget_holds
        held["Theorem 1, (eta/z)^2"] += first.coupling_holds
        held["max(eps_p, eps_v) >= eta/z"] += first.larger_radius >= first.smallest_radius
        held["Theorem 2, bound on d_H"] += second.holds
        held["Theorem 2, eps_p"] += second.prompt_holds
        held["Theorem 2, eps_v"] += second.visual_holds
        held["Theorem 2, step b eps_p^-d >= Kp"] += second.step_holds
        held["d_H(V + P, S + P) <= eta"] += found.distances.pruned <= found.distances.coupling
    return held


def _certify_random_cover(seed: int) -> Certificate:
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    width, count, clusters = draw(2, 16), draw(12, 60), draw(1, 8)
    homes = torch.randn(clusters, width, generator=generator)
    spread = 0.02 + float(torch.rand((), generator=generator))
    noise = spread * torch.randn(count, width, generator=generator)
    visual = homes[torch.randint(clusters, (count,), generator=generator)] + noise
    prompt = torch.randn(draw(2, 10), width, generator=generator)
    budget = draw(2, count // 2)
    prompt_budget, fold = draw(1, budget - 1), draw(1, 8)
    cover = tc.mob(visual, prompt, budget=budget, prompt_budget=prompt_budget, fold=fold)
    assert isinstance(cover, tc.Cover)  # one sample
    return certify(visual, prompt, cover, fold=fold)


def main() -> None:
    """Print all three parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=24, help="places on the circle")
    parser.add_argument("--samples", type=int, default=500, help="random covers")
    options = parser.parse_args()
    search(Circle(options.steps))
    print("\ncounter-example to Theorem 1:\n")
    print(certify(*make_counterexample()))
    second = certify(*make_counterexample_to_theorem2(), fold=1)
    assert second.theorem2 is not None  # both radii are positive
    print(
        f"\ncounter-example to Theorem 2: eps_v {second.distances.visual_radius:.4f}, claimed at "
        f"most {second.theorem2.visual_bound:.4f}"
    )
    held = sweep(options.samples)
    print(f"\nheld for covers by MoB, of {held.pop('covers')}:")
    for claim, count in held.items():
        print(f"  {claim:<36}{count:>6}")


if __name__ == "__main__":
    main()
