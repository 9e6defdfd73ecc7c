"""The fast search on a CPU: estimates first, exact arithmetic only where they cannot decide.

`search.py` explains how it works; `vectors.py` has the tokens and their estimates, `bounds.py` what
the search knows about all tokens, `local.py` and `exact_rounds.py` the ways to continue where
tokens are close together, and `scratch.py` the threads and buffers of it all.
"""

from tokencover.covering.search.scratch import (
    ScratchBuffers,
    count_threads,
    on_one_thread,
    run_in_pieces,
)
from tokencover.covering.search.search import search_farthest
from tokencover.covering.search.vectors import (
    CosineEstimates,
    Distinct,
    Vectors,
    bound_error,
    measure_norms,
    scale_to_one,
)

__all__ = [
    "CosineEstimates",
    "Distinct",
    "ScratchBuffers",
    "Vectors",
    "bound_error",
    "count_threads",
    "measure_norms",
    "on_one_thread",
    "run_in_pieces",
    "scale_to_one",
    "search_farthest",
]
