"""The vision tower: how it was called, reading what it computed, merging tokens inside it."""

from tokencover.pruning.vision.encoder_calls import KINDS, PIXELS, EncoderCalls, guess_tower
from tokencover.pruning.vision.encoder_memory import EncoderMemory
from tokencover.pruning.vision.encodings import Encodings
from tokencover.pruning.vision.tower_merger import TowerMerger
from tokencover.pruning.vision.tower_reader import TowerReader

__all__ = [
    "KINDS",
    "PIXELS",
    "EncoderCalls",
    "EncoderMemory",
    "Encodings",
    "TowerMerger",
    "TowerReader",
    "guess_tower",
]
