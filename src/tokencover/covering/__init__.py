"""Geometry on plain tensors: which visual tokens cover the prompt and the image.

=====================  ==========================================================================
Algorithm 1 (MoB)      `mob.mob_literal` as the paper writes it; `mob.mob`, fast
  step 1, S_p          `mob.nearest_points`: k-fold nearest-neighbor covering
  step 2, S_v          `mob.farthest_points`: farthest point sampling
  on a CPU             `search/`: the same by estimates, exact where these are not clear
  on an accelerator    `accelerator.py`, `together/`: the same for a batch, proven at the end
Algorithm 2 (eta)      `coupling.coupling`, the Hausdorff distance
covering radii         `radii.prompt_order`, `radii.farthest_order`: for every budget in one run
baselines              `diversity.select_diverse` (DivPrune), `select_least_similar` (DART)
distances              `exact.cosine`: one well-defined number on every machine
ties                   `exact.rank_descending` and the functions after it
input checks           `checks.py`
tuning constants       `tuning.py`, with the commands that measure them
=====================  ==========================================================================

Bounds, covering numbers and approximations of eta are in `tokencover.theory`, splits of a budget in
`tokencover.budget`.
"""

from tokencover.covering.checks import (
    check_count,
    check_finite,
    check_pair,
)
from tokencover.covering.coupling import coupling, directed_hausdorff, hausdorff
from tokencover.covering.diversity import (
    select_diverse,
    select_least_similar,
    select_most_isolated,
)
from tokencover.covering.exact import (
    Points,
    compute_pairwise_cosines,
    compute_pairwise_sq_distances,
    cosine,
    count_before,
    keep_precision,
    rank_ascending,
    rank_descending,
    select_largest,
    select_smallest,
    snap,
    to_float32,
)
from tokencover.covering.mob import (
    Cover,
    farthest_points,
    mob,
    mob_batch,
    mob_literal,
    nearest_points,
)
from tokencover.covering.radii import farthest_order, prompt_order

__all__ = [
    "Cover",
    "Points",
    "check_count",
    "check_finite",
    "check_pair",
    "compute_pairwise_cosines",
    "compute_pairwise_sq_distances",
    "cosine",
    "count_before",
    "coupling",
    "directed_hausdorff",
    "farthest_order",
    "farthest_points",
    "hausdorff",
    "keep_precision",
    "mob",
    "mob_batch",
    "mob_literal",
    "nearest_points",
    "prompt_order",
    "rank_ascending",
    "rank_descending",
    "select_diverse",
    "select_largest",
    "select_least_similar",
    "select_most_isolated",
    "select_smallest",
    "snap",
    "to_float32",
]
