"""The decoder: what its blocks get when sequences were shortened."""

from tokencover.runtime.decoder.block_inputs import BlockInputs
from tokencover.runtime.decoder.own_masks import check_readable
from tokencover.runtime.decoder.pruned_cache import PrunedCache, Pruning, check_lengths
from tokencover.runtime.decoder.query_scales import QueryScales
from tokencover.runtime.decoder.renumbering import Renumbering, keep_positions
from tokencover.runtime.decoder.stage_checks import check_shared_keys, find_stages
from tokencover.runtime.decoder.whole_mask import give_mask

__all__ = [
    "BlockInputs",
    "PrunedCache",
    "Pruning",
    "QueryScales",
    "Renumbering",
    "check_lengths",
    "check_readable",
    "check_shared_keys",
    "find_stages",
    "give_mask",
    "keep_positions",
]
