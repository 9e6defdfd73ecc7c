"""Split the budget so that prompt and image are covered equally well.

MoB minimizes the larger of two covering radii; the paper leaves the split (Kp, K - Kp) to tables.
Here it comes from the sample: more prompt centers shrink one radius, fewer visual centers grow the
other, and the best split is where the two curves cross.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tokencover.covering import check_count, check_pair, farthest_order, prompt_order


@dataclass(frozen=True, slots=True)
class Balance:
    """Both covering radii for every split of a budget K, at most the number of visual tokens.

    ``prompt_radius[Kp]``, Kp = 0 .. K, is the distance of the worst prompt token to the nearest of
    the Kp visual tokens most aligned with the prompt; ``visual_radius[Kv]``, Kv = 0 .. K, that of
    the worst visual token to the nearest of the first Kv farthest points. Infinite for 0.
    """

    prompt_radius: tuple[float, ...]
    visual_radius: tuple[float, ...]

    @property
    def larger_radius(self) -> tuple[float, ...]:
        """max(eps_p(Kp), eps_v(K - Kp)) for Kp = 0 .. K: what the best split minimizes."""
        pairs = zip(self.prompt_radius, reversed(self.visual_radius), strict=True)
        return tuple(max(pair) for pair in pairs)

    @property
    def prompt_budget(self) -> int:
        """The Kp with the smallest larger radius; the smallest such Kp."""
        larger = self.larger_radius
        return min(range(len(larger)), key=larger.__getitem__)


def balance(visual: Tensor, prompt: Tensor, budget: int) -> Balance:
    """Covering radii of prompt and image for every split of the budget.

    Both orders of centers are nested (`covering/radii.py`), so one run of each gives all K + 1
    splits: O(n (l + K) d) like one run of MoB, and O(K (l + K) d) for the radii.

    The visual centers are those of farthest point sampling without a start. `mob` starts from the
    prompt centers, so its own visual centers differ; with ``fold >= Kp`` its prompt centers are
    the ones counted here.

    Parameters
    ----------
    visual : Tensor
        V, ``(n, d)``.
    prompt : Tensor
        P, ``(l, d)``. Without a token every prompt radius is 0, and the best Kp is 0.
    budget : int
        K, at least 1; cut to n.
    """
    check_pair(visual, prompt, ranks=(2,))
    budget = min(check_count("budget", budget, 1), len(visual))
    nearest = prompt_order(visual, prompt, most=budget)
    farthest = farthest_order(visual, most=budget)
    return Balance(tuple(nearest.radius.tolist()), tuple(farthest.radius.tolist()))


def balance_prompt_budget(visual: Tensor, prompt: Tensor, budget: int) -> int:
    """Kp that minimizes max(eps_p(Kp), eps_v(K - Kp)), the smallest such; see `balance`.

    A budget of 1 cannot cover both: Kp is 0 then, as without a prompt.
    """
    return balance(visual, prompt, budget).prompt_budget
