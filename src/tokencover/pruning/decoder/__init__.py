"""The decoder: what its layers get when sequences were shortened.

| file | what it does |
|---|---|
| `layers` | masks and positions of layers for kept tokens; which methods a decoder supports |
| `masks` | masks of models with windows or bidirectional attention, cut to kept tokens |
| `cache` | caches whose layers differ in length |
| `query_scales` | queries scaled by position (Llama 4) |
| `whole_mask` | a mask where M-RoPE positions would be read as documents |
"""

from tokencover.pruning.decoder.cache import PrunedCache, Pruning, check_lengths
from tokencover.pruning.decoder.layers import (
    LayerGroup,
    LayerInputs,
    check_layers,
    get_argument,
    keep_positions,
    resolve_stages,
)
from tokencover.pruning.decoder.masks import check_readable
from tokencover.pruning.decoder.query_scales import QueryScales
from tokencover.pruning.decoder.whole_mask import give_mask

__all__ = [
    "LayerGroup",
    "LayerInputs",
    "PrunedCache",
    "Pruning",
    "QueryScales",
    "check_layers",
    "check_lengths",
    "check_readable",
    "get_argument",
    "give_mask",
    "keep_positions",
    "resolve_stages",
]
