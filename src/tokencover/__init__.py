"""Faster vision-language models: keep only the visual tokens that matter."""

from tokencover.budget import Split, paper_split
from tokencover.covering import Cover, coupling, farthest_points, mob, nearest_points
from tokencover.errors import InputError, TokenCoverError
from tokencover.methods import MoB
from tokencover.pebble import load_pebble
from tokencover.runtime import prune

__version__ = "0.1.0"
__all__ = [
    "Cover",
    "InputError",
    "MoB",
    "Split",
    "TokenCoverError",
    "coupling",
    "farthest_points",
    "load_pebble",
    "mob",
    "nearest_points",
    "paper_split",
    "prune",
]
