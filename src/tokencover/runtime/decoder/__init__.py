"""The decoder: what its blocks get when sequences were shortened."""

from tokencover.runtime.decoder.block_inputs import BlockInputs
from tokencover.runtime.decoder.pruned_cache import PrunedCache, Pruning
from tokencover.runtime.decoder.renumbering import Renumbering

__all__ = ["BlockInputs", "PrunedCache", "Pruning", "Renumbering"]
