"""Split the budget so that prompt and picture are covered equally well.

MoB minimises the larger of two covering radii; the paper leaves the split (Kp, K - Kp) to tables.
Here it is read off the sample itself: more prompt centres shrink one radius, fewer visual centres
grow the other, and the best split is where the two curves cross.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tokencover.covering import (
    Count,
    check_count,
    check_counts,
    check_mask,
    check_pair,
    farthest_order,
    prompt_order,
)


@dataclass(frozen=True, slots=True)
class Balance:
    """Both covering radii for every split of a budget K.

    Attributes
    ----------
    prompt_radius : tuple of float
        ``prompt_radius[Kp]`` for Kp = 0 .. K: how far the worst prompt token is from the nearest of
        the Kp visual tokens most aligned with the prompt. Infinite for Kp = 0.
    visual_radius : tuple of float
        ``visual_radius[Kv]`` for Kv = 0 .. K: how far the worst visual token is from the nearest of
        the first Kv farthest points. Infinite for Kv = 0.
    """

    prompt_radius: tuple[float, ...]
    visual_radius: tuple[float, ...]

    @property
    def budget(self) -> int:
        """K, at most the number of visual tokens."""
        return len(self.prompt_radius) - 1

    @property
    def larger_radius(self) -> tuple[float, ...]:
        """max(eps_p(Kp), eps_v(K - Kp)) for Kp = 0 .. K: what the best split makes small."""
        pairs = zip(self.prompt_radius, reversed(self.visual_radius), strict=True)
        return tuple(max(pair) for pair in pairs)

    @property
    def prompt_budget(self) -> int:
        """The Kp with the smallest larger radius; the smallest such Kp."""
        larger = self.larger_radius
        return min(range(len(larger)), key=larger.__getitem__)


def balance(visual: Tensor, prompt: Tensor, budget: int) -> Balance:
    """Covering radii of prompt and picture for every split of the budget.

    Both orders of centres are nested (`radii.py`), so one run of each gives all K + 1 splits:
    O(n (l + K) d) like one run of MoB, and O(K (l + K) d) for the radii. Looking for the best split
    is O(K) numbers after that. Distances are exact; batch, threads and device change nothing.

    The visual centres are those of farthest point sampling from *no* start. `mob` starts from
    the prompt centres, so its own visual centres differ; with ``fold >= Kp`` its prompt centres are
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
    words = prompt_order(visual, prompt, most=budget)
    picture = farthest_order(visual, most=budget)
    return Balance(tuple(words.radius.tolist()), tuple(picture.radius.tolist()))


def balance_prompt_budget(visual: Tensor, prompt: Tensor, budget: int) -> int:
    """Kp that minimises max(eps_p(Kp), eps_v(K - Kp)), the smallest such; see `balance`.

    A budget of 1 cannot cover both: Kp is 0 then, as without a prompt.
    """
    return balance(visual, prompt, budget).prompt_budget


def balance_prompt_budgets(
    visual: Tensor,
    prompt: Tensor,
    budget: Count,
    *,
    visual_mask: Tensor | None = None,
    prompt_mask: Tensor | None = None,
) -> list[int]:
    """`balance_prompt_budget` of every sample of a batch, each equal to the single run.

    Parameters
    ----------
    visual, prompt : Tensor
        ``(batch, n, d)`` and ``(batch, l, d)``.
    budget : int or list of int
        K, for all samples or one each.
    visual_mask, prompt_mask : Tensor, optional
        bool, False leaves a token out.
    """
    check_pair(visual, prompt, ranks=(3,))
    check_mask("visual_mask", visual_mask, visual)
    check_mask("prompt_mask", prompt_mask, prompt)
    budgets = check_counts("budget", budget, 1, len(visual))
    return [
        balance_prompt_budget(
            visual[sample] if visual_mask is None else visual[sample, visual_mask[sample]],
            prompt[sample] if prompt_mask is None else prompt[sample, prompt_mask[sample]],
            each,
        )
        for sample, each in enumerate(budgets)
    ]
