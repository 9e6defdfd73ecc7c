"""The paper's statements about a cover, computed for real tokens.

==========================  ==============================================================
Lemma 1, its relaxation     `bounds.Distances`: bounds that hold for any tokens
all of Section 3            `certificate.certify`: every quantity for one cover
Definition 1, Lemma 2       `bounds.CoveringNumbers`, effective dimension, constants
Theorems 1 and 2            `bounds.Theorem1`, `bounds.Theorem2`: claims, whether they held
==========================  ==============================================================

Estimates of eta and of a model's constant C are in the repository's research/theory/.
"""

from tokencover.theory.bounds import CoveringNumbers
from tokencover.theory.certificate import Certificate, certify

__all__ = ["Certificate", "CoveringNumbers", "certify"]
