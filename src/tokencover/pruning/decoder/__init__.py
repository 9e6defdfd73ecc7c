"""The decoder: what its blocks get when sequences were shortened."""

from tokencover.pruning.decoder.block_inputs import BlockInputs
from tokencover.pruning.decoder.own_masks import check_readable
from tokencover.pruning.decoder.pruned_cache import PrunedCache, Pruning, check_lengths
from tokencover.pruning.decoder.renumbering import Renumbering, keep_positions
from tokencover.pruning.decoder.stage_checks import check_shared_keys, find_stages

__all__ = [
    "BlockInputs",
    "PrunedCache",
    "Pruning",
    "Renumbering",
    "check_lengths",
    "check_readable",
    "check_shared_keys",
    "find_stages",
    "keep_positions",
]
