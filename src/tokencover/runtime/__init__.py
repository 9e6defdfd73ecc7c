"""Makes a transformers model run a method."""

from tokencover.runtime.prune import Run, prune
from tokencover.runtime.trace import Trace

__all__ = ["Run", "Trace", "prune"]
