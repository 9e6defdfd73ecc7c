"""Geometry on plain tensors: which visual tokens cover the prompt and the picture.

=====================  ==========================================================
Algorithm 1 (MoB)      `balanced.mob`
  step 1, S_p          `nearest.nearest_points`: k-fold nearest-neighbour covering
  step 2, S_v          `farthest.farthest_points`: farthest point sampling
Algorithm 2 (eta)      `hausdorff.coupling`, approximations in `coupling_estimates.py`
radii, covering        `radii.py`, `covering_numbers.py` (Definition 1, Lemma 2)
bounds                 `certificate.certify`, `theorems.py` (Lemma 1, Theorems 1 and 2)
balance of the radii   `balance.balanced_prompt_budget`
distances              `exact.cosine`: exact; `estimate.Cloud`: fast, bounded error
=====================  ==========================================================
"""

from tokencover.covering.checks import (
    Count,
    check_count,
    check_finite,
    check_mask,
    check_pair,
    counts_per_sample,
)
from tokencover.covering.coupling import coupling, directed_hausdorff, hausdorff
from tokencover.covering.exact import Points, cosine, snap
from tokencover.covering.farthest import farthest_points
from tokencover.covering.mob import Cover, mob, mob_batch
from tokencover.covering.nearest import nearest_points
from tokencover.covering.precision import plain, undisturbed
from tokencover.covering.radii import farthest_order, prompt_order

__all__ = [
    "Count",
    "Cover",
    "Points",
    "check_count",
    "check_finite",
    "check_mask",
    "check_pair",
    "cosine",
    "counts_per_sample",
    "coupling",
    "directed_hausdorff",
    "farthest_order",
    "farthest_points",
    "hausdorff",
    "mob",
    "mob_batch",
    "nearest_points",
    "plain",
    "prompt_order",
    "snap",
    "undisturbed",
]
