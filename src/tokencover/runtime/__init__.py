"""Makes a transformers model run a method."""

from tokencover.runtime.claims import claims
from tokencover.runtime.cost import block_cost
from tokencover.runtime.families import FAMILIES, family_of
from tokencover.runtime.family import Family
from tokencover.runtime.lines import FIRST_CONTROL, Line, Reader
from tokencover.runtime.prune import Run, prune
from tokencover.runtime.trace import Trace
from tokencover.runtime.words import UserWords

__all__ = [
    "FAMILIES",
    "FIRST_CONTROL",
    "Family",
    "Line",
    "Reader",
    "Run",
    "Trace",
    "UserWords",
    "block_cost",
    "claims",
    "family_of",
    "prune",
]
