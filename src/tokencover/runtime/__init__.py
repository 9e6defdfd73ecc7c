"""Makes a transformers model run a method."""

from tokencover.budget import block_cost
from tokencover.runtime.families import (
    FAMILIES,
    Family,
    Layout,
    Media,
    family_of,
    find_claims,
    find_refused,
)
from tokencover.runtime.prompt import FIRST_CONTROL, Reader, TokenLine, UserWords, mark_text
from tokencover.runtime.prune import Run, prune
from tokencover.runtime.tensor_parallel import TensorParallelGroup, get_tensor_parallel_group
from tokencover.runtime.tower import EncoderMemory
from tokencover.runtime.trace import Trace

__all__ = [
    "FAMILIES",
    "FIRST_CONTROL",
    "EncoderMemory",
    "Family",
    "Layout",
    "Media",
    "Reader",
    "Run",
    "TensorParallelGroup",
    "TokenLine",
    "Trace",
    "UserWords",
    "block_cost",
    "family_of",
    "find_claims",
    "find_refused",
    "get_tensor_parallel_group",
    "mark_text",
    "prune",
]
