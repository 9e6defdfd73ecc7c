"""What is not on Algorithm 1's path: the paper's statements, computed for real tokens.

==========================  ======================================================================
Lemma 1, its relaxation     `certificate.Distances`: bounds that hold for any tokens
all of Section 3            `certificate.certify`: every quantity for one cover; ``print`` it
Definition 1, Lemma 2       `covering_numbers.py`: covering numbers, effective dimension, constants
Theorems 1 and 2            `theorems.py`: what they claim, and whether it held
eta, approximately          `coupling_estimates.py`: by sampling, by random projection
Assumption 1                `lipschitz.estimate_lipschitz`: the constant C of a model, from below
==========================  ======================================================================

What holds and what does not: docs/theory.md.
"""

from tokencover.theory.certificate import Certificate, certify
from tokencover.theory.coupling_estimates import (
    CouplingEstimate,
    projected_coupling,
    sampled_coupling,
)
from tokencover.theory.covering_numbers import CoveringNumbers
from tokencover.theory.lipschitz import LipschitzEstimate, estimate_lipschitz

__all__ = [
    "Certificate",
    "CouplingEstimate",
    "CoveringNumbers",
    "LipschitzEstimate",
    "certify",
    "estimate_lipschitz",
    "projected_coupling",
    "sampled_coupling",
]
