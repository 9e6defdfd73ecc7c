"""The fast search on a CPU: estimates first, exact arithmetic only where they cannot tell.

===================  ==============================================================
`Distinct`           one sample's tokens, of several copies the first
`Cloud`              one sample's tokens, with float32 cosines of proven error
`search_farthest`    step 2 of Algorithm 1, as far as tokens can be told apart
`TableCloud`         a cloud with all its cosines, for `search_among_different`
`Workspace`          memory that is used again, for those who work with a `Cloud`
`use_one_thread`     what all of the above is to be done in; `count_threads` and `do_in_pieces`
                     take more threads there for what is large
`bound_error`        that error; `measure_norms` and `scale_to_one` are what it assumes
===================  ==============================================================

How it works: `search.py`, from the bounds of `estimate.py` and guesses among a few tokens to their
proof.
"""

from tokencover.covering.search.copies import Distinct
from tokencover.covering.search.estimate import Cloud, bound_error, measure_norms, scale_to_one
from tokencover.covering.search.search import search_among_different, search_farthest
from tokencover.covering.search.table import TableCloud
from tokencover.covering.search.thread_use import count_threads, do_in_pieces, use_one_thread
from tokencover.covering.search.workspace import Workspace

__all__ = [
    "Cloud",
    "Distinct",
    "TableCloud",
    "Workspace",
    "bound_error",
    "count_threads",
    "do_in_pieces",
    "measure_norms",
    "scale_to_one",
    "search_among_different",
    "search_farthest",
    "use_one_thread",
]
