"""Geometry on plain tensors: which visual tokens cover the prompt and the picture.

=====================  ==========================================================================
Algorithm 1 (MoB)      `mob.mob_literal` as the paper writes it; `mob.mob` as it is used
  step 1, S_p          `nearest.nearest_points`: k-fold nearest-neighbour covering
  step 2, S_v          `farthest.farthest_points`: farthest point sampling
  on a CPU             `lazy/`: the same by estimates, exact where they cannot tell
  on an accelerator    `together/`: the same for a whole batch, proven at the end
Algorithm 2 (eta)      `coupling.coupling`, the Hausdorff distance
covering radii         `radii.prompt_order`, `radii.farthest_order`: for every budget in one run
distances              `exact.cosine`: one well-defined number on every machine
ties                   `exact.rank_descending` and the like: the one rule that settles them
=====================  ==========================================================================

Bounds, covering numbers and approximations of eta are in `tokencover.theory`, splits of a budget in
`tokencover.budget`.
"""

from tokencover.covering.checks import (
    Count,
    check_count,
    check_counts,
    check_finite,
    check_mask,
    check_pair,
)
from tokencover.covering.coupling import coupling, directed_hausdorff, hausdorff
from tokencover.covering.exact import (
    Points,
    cosine,
    count_before,
    find_largest,
    find_mutual_cosines,
    find_mutual_squares,
    find_smallest,
    keep_precision,
    mark_largest,
    rank_ascending,
    rank_descending,
    snap,
    to_float32,
)
from tokencover.covering.farthest import farthest_points
from tokencover.covering.isolation import choose_diverse, find_most_isolated
from tokencover.covering.least_similar import take_least_similar
from tokencover.covering.mob import Cover, mob, mob_batch, mob_literal
from tokencover.covering.nearest import nearest_points
from tokencover.covering.radii import farthest_order, prompt_order

__all__ = [
    "Count",
    "Cover",
    "Points",
    "check_count",
    "check_counts",
    "check_finite",
    "check_mask",
    "check_pair",
    "choose_diverse",
    "cosine",
    "count_before",
    "coupling",
    "directed_hausdorff",
    "farthest_order",
    "farthest_points",
    "find_largest",
    "find_most_isolated",
    "find_mutual_cosines",
    "find_mutual_squares",
    "find_smallest",
    "hausdorff",
    "keep_precision",
    "mark_largest",
    "mob",
    "mob_batch",
    "mob_literal",
    "nearest_points",
    "prompt_order",
    "rank_ascending",
    "rank_descending",
    "snap",
    "take_least_similar",
    "to_float32",
]
