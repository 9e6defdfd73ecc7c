"""What is not on Algorithm 1's path: the paper's bounds, computed for real tokens."""

from tokencover.theory.certificate import Certificate, certify
from tokencover.theory.coupling_estimates import (
    CouplingEstimate,
    projected_coupling,
    sampled_coupling,
)
from tokencover.theory.lipschitz import estimate_lipschitz

__all__ = [
    "Certificate",
    "CouplingEstimate",
    "certify",
    "estimate_lipschitz",
    "projected_coupling",
    "sampled_coupling",
]
