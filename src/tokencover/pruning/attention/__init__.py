"""Keys and a few rows of attention of decoder blocks, without attention maps."""

from tokencover.pruning.attention.block_recorder import (
    Recorded,
    Recorder,
    find_past,
    make_recorders,
)
from tokencover.pruning.attention.probe import Probe
from tokencover.pruning.attention.upcoming_block import UpcomingBlock

__all__ = ["Probe", "Recorded", "Recorder", "UpcomingBlock", "find_past", "make_recorders"]
