"""Makes a transformers model run a method."""

from tokencover.pruning.prompt import FIRST_CONTROL, Reader, TokenLine, UserWords, mark_text
from tokencover.pruning.prune import Run, prune
from tokencover.pruning.tensor_parallel import TensorParallelGroup, get_tensor_parallel_group
from tokencover.pruning.trace import Trace
from tokencover.pruning.vision import EncoderMemory

__all__ = [
    "FIRST_CONTROL",
    "EncoderMemory",
    "Reader",
    "Run",
    "TensorParallelGroup",
    "TokenLine",
    "Trace",
    "UserWords",
    "get_tensor_parallel_group",
    "mark_text",
    "prune",
]
