"""The paper's statements about a cover, computed for real tokens: `certify` returns all of them.

Estimates of eta and of a model's constant C are in the repository's research/theory/.
"""

from tokencover.theory.bounds import CoveringNumbers
from tokencover.theory.certificate import Certificate, certify

__all__ = ["Certificate", "CoveringNumbers", "certify"]
