"""The vision tower: how it was called, reading what it computed, merging tokens inside it."""

from tokencover.runtime.tower.encoder_calls import KINDS, PIXELS, EncoderCalls, guess_tower
from tokencover.runtime.tower.encoder_memory import EncoderMemory
from tokencover.runtime.tower.encodings import Encodings
from tokencover.runtime.tower.tower_merger import TowerMerger
from tokencover.runtime.tower.tower_reader import TowerReader

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
