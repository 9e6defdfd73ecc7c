"""Every tuning constant of the selection, with the command that measures it.

No constant here changes a result: selections are exact for all values, only time and memory differ
(tests use other values, too). Values are chosen by the times that the command of their section
prints: to revise one, run it with the old and the new value. The scripts `selection.py` and
`methods.py` are in ``benchmarks``. Constants that a proof depends on are next to the proof; those
of the batched search for accelerators are in ``together``.
"""

from __future__ import annotations

from typing import Final

# Exact arithmetic (`exact.py`, `mob.py`, `radii.py`): few enough float64 rows at a time for the
# processor's cache. Measured by `selection.py --kinds alike,isotropic`; pairs by
# `methods.py --methods CDPruner,SCOPE`; radii by `tests/covering/test_radii.py --durations 5`.
SNAP_BLOCK: Final = 32
PAIR_BLOCK: Final = 192
SMALL_PAIR_BLOCK: Final = 48
"""For sets of few tokens: half of the pairs inside a block are multiplied twice."""
CANDIDATE_BLOCK: Final = 64
SUM_BLOCK: Final = 1024
RADIUS_BLOCK: Final = 256

# Products of float32 estimates (`search/vectors.py`). Measured by `selection.py`.
CHUNK: Final = 128
"""Coordinates per partial sum: the error bound grows with it, the time falls."""
NORM_CHUNK: Final = 64
SMALL_PRODUCT: Final = 2**14
"""Products of at most so many cosines are one batched call instead of one call per chunk."""
SMALL_PRODUCT_ROWS: Final = 192
FEW_DIRECTIONS: Final = 24
"""Fewer directions come first in a product, which takes half the time."""

# Copies (`search/vectors.py`). Measured by `selection.py --kinds copies`.
COPY_BLOCK: Final = 64
MARK_COLUMNS: Final = 8
"""Coordinates that make up a token's mark."""

# Guesses (`search/search.py`). Measured by `selection.py --kinds low-rank,isotropic`.
POOL_MIN: Final = 64
POOL_START: Final = 160
POOL_MAX: Final = 640
"""Tokens per guess: about as many as are wanted, between the first two; doubled up to the third
while a guess settles nothing."""
REFRESH_FRACTION: Final = 8
"""A pool of one in so many tokens costs as much as comparing all with the new centers."""
REFRESH_BLOCK: Final = 4096

# When to stop guessing (`search/search.py`). Measured by
# `selection.py --kinds few-clusters,many-clusters,tight-clusters,details`.
MAX_RIVALS: Final = 12
MAX_MISTAKES: Final = 1
MISTAKE_PROGRESS: Final = 32
"""A wrong guess counts as a mistake if it added fewer centers than this."""
MIN_RESOLUTION: Final = 32
"""Distances below so many tolerances are guessed wrong too often."""
DECIDED_FRACTION: Final = 1.5
"""Rivals measured exactly, as a multiple of the number of tokens."""

# Local estimates (`search/local.py`). Measured by
# `selection.py --kinds tight-clusters,details,alike`.
LOCAL_DISTANCE: Final = 0.02
"""Largest distance to the nearest center for which local estimates are tried."""
JOINED: Final = 8.0
"""Centers closer than so many times that distance share a neighborhood."""
MIN_GAIN: Final = 4.0
"""How many times smaller the error must become."""
BLURRED: Final = 8.0
"""Below so many times their error, cosine estimates do not show how wide a neighborhood is."""
LOCAL_PADDING: Final = 16
"""Columns after the coordinates, of which two are used: rows start at a cache line."""
LOCAL_BLOCK: Final = 32
LOCAL_PAIRS: Final = 2**14
"""From so many pairs on, only pairs within one neighborhood are compared."""

# Exact rounds (`search/exact_rounds.py`). Measured by `selection.py --kinds alike,tight-clusters`.
EXACT_POOL_MIN: Final = 96
EXACT_POOL_MAX: Final = 384
EXACT_BLOCK: Final = 256
NEAREST_BLOCK: Final = 2048

# Threads and buffers (`search/scratch.py`). Measured by `selection.py --busy --single`.
THREADED_PRODUCT: Final = 2**28
"""Multiply-adds that are worth several threads: a few milliseconds."""
PIECES_PER_THREAD: Final = 8
MAX_THREADS: Final = 16
"""Each piece is dozens of calls from Python: more threads would wait for each other."""
KEPT_BUFFER: Final = 2**24
"""Bytes; larger buffers are freed after use: clearing their pages is little of the work."""

# DivPrune and DART (`diversity.py`). Measured by `methods.py --methods DivPrune,DART`.
DIVERSE_CHUNK: Final = 512
"""As CHUNK: there are so many products that speed matters more than their error."""
DIVERSE_BLOCK: Final = 192
DIVERSE_RIVALS: Final = 12
"""With more rivals for one place, the general search continues."""
EXACT_PIVOT_FRACTION: Final = 8
"""If one token in so many is unsure, all tokens are compared exactly."""
