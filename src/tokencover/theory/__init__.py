"""What is not on Algorithm 1's path: the paper's statements, computed for real tokens.

==========================  ======================================================================
Lemma 1, its relaxation     `certificate.Distances`: bounds that hold for any tokens
all of Section 3            `certificate.certify`: every quantity for one cover; ``print`` it
Definition 1, Lemma 2       `covering_numbers.py`: covering numbers, effective dimension, constants
Theorems 1 and 2            `theorems.py`: what they claim, and whether it held
==========================  ======================================================================

Estimates of eta and of a model's constant C are in the repository's research/theory/.
"""

from tokencover.theory.certificate import Certificate, certify
from tokencover.theory.covering_numbers import CoveringNumbers

__all__ = [
    "Certificate",
    "CoveringNumbers",
    "certify",
]
