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

from tokencover.covering.balance import balanced_prompt_budget, balanced_prompt_budgets
from tokencover.covering.balanced import Cover, mob, mob_batch
from tokencover.covering.certificate import Certificate, certify
from tokencover.covering.coupling_estimates import (
    CouplingEstimate,
    projected_coupling,
    sampled_coupling,
)
from tokencover.covering.farthest import farthest_points
from tokencover.covering.hausdorff import coupling, directed_hausdorff, hausdorff
from tokencover.covering.nearest import nearest_points

__all__ = [
    "Certificate",
    "CouplingEstimate",
    "Cover",
    "balanced_prompt_budget",
    "balanced_prompt_budgets",
    "certify",
    "coupling",
    "directed_hausdorff",
    "farthest_points",
    "hausdorff",
    "mob",
    "mob_batch",
    "nearest_points",
    "projected_coupling",
    "sampled_coupling",
]
