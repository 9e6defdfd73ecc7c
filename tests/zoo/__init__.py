"""Tiny random-weight instances of the real model classes, with inputs and what is where in them."""

from . import (
    idefics3,
    internvl,
    llava,
    llava_next,
    llava_onevision,
    qwen2_5_vl,
    qwen2_vl,
    qwen3_vl,
    smolvlm,
    video_llava,
)
from .entry import SIDES, Inputs, Medium, Sample, Side, Span, ZooEntry
from .layout import Grid, Layout, Tiled, WithClass

ZOO: dict[str, ZooEntry] = {
    module.ENTRY.name: module.ENTRY
    for module in (
        llava,
        llava_next,
        qwen2_vl,
        qwen2_5_vl,
        qwen3_vl,
        video_llava,
        llava_onevision,
        internvl,
        smolvlm,
        idefics3,
    )
}

__all__ = [
    "SIDES",
    "ZOO",
    "Grid",
    "Inputs",
    "Layout",
    "Medium",
    "Sample",
    "Side",
    "Span",
    "Tiled",
    "WithClass",
    "ZooEntry",
]
