"""The fast search on a CPU: estimates first, exact arithmetic only where they are not clear.

`search.py` explains how it works; `vectors.py` has the tokens and their estimates, `bounds.py` what
the search knows about all tokens, `local.py` and `exact_rounds.py` the ways to continue where
tokens are close together, and `scratch.py` the threads and buffers.
"""
