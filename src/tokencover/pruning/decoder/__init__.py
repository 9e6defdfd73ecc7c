"""The decoder: what its blocks get when sequences were shortened."""

from tokencover.pruning.decoder.block_inputs import BlockInputs
from tokencover.pruning.decoder.own_masks import check_readable
from tokencover.pruning.decoder.pruned_cache import PrunedCache, Pruning, check_lengths
from tokencover.pruning.decoder.query_scales import QueryScales
from tokencover.pruning.decoder.renumbering import Renumbering, keep_positions
from tokencover.pruning.decoder.stage_checks import check_shared_keys, find_stages
from tokencover.pruning.decoder.whole_mask import give_mask

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
