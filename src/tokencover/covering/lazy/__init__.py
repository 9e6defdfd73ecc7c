"""The fast search on a CPU: estimates first, exact arithmetic only where they cannot tell.

===================  ==============================================================
`Cloud`              one sample's tokens, with float32 cosines of proven error
`search_farthest`    step 2 of Algorithm 1, as far as tokens can be told apart
`Workspace`          memory that is used again, for those who work with a `Cloud`
===================  ==============================================================

How it works: `search.py`, from the centres and bounds of `bounds.py` and guesses among a few tokens
(`shortlist.py`) to their proof (`proof.py`).
"""

from tokencover.covering.lazy.estimate import Cloud
from tokencover.covering.lazy.search import search_farthest
from tokencover.covering.lazy.workspace import Workspace

__all__ = ["Cloud", "Workspace", "search_farthest"]
