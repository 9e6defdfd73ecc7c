"""How methods look in charts: each always has the same colour, MoB the most striking one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

COLORS: Final = {
    "mob": "#c8102e",
    "fastv": "#1f77b4",
    "sparsevlm": "#2ca02c",
    "pyramiddrop": "#9467bd",
    "visionzip": "#8c564b",
    "dart": "#e377c2",
    "divprune": "#17becf",
    "cdpruner": "#bcbd22",
    "tokencarve": "#ff7f0e",
    "twigvlm": "#393b79",
    "mustdrop": "#637939",
    "fastervlm": "#8c6d31",
    "hired": "#ad494a",
    "prumerge": "#a55194",
    "prumerge+": "#6b6ecf",
    "tome": "#3182bd",
    "ficoco_v": "#31a354",
    "scope": "#756bb1",
    "look_ahead": "#636363",
    "mob_stages": "#08306b",
    "farthest": "#6baed6",
    "nearest": "#fd8d3c",
    "random": "#969696",
    "grid": "#bdbdbd",
    "downsample": "#525252",
}
"""By the method's name, so that pages and papers can be laid beside each other."""
SPARE: Final = ("#e6550d", "#0868ac", "#006d2c", "#54278f", "#a63603", "#08519c")
"""For methods of other packages."""
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""For several settings of one method: a full line, then broken ones."""
UNPRUNED: Final = "#111111"


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and line of a method with its settings."""

    color: str
    dash: list[int]


def choose_looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label, ``mob`` or ``mob:split=weak``; those of one method share a colour."""
    looks: dict[str, Look] = {}
    counts: dict[str, int] = {}
    for label in sorted(labels, key=lambda text: (len(text), text)):
        name = label.partition(":")[0]
        color = COLORS.get(name) or SPARE[crc32(name.encode()) % len(SPARE)]
        number = counts.get(name, 0)
        counts[name] = number + 1
        looks[label] = Look(color, DASHES[number % len(DASHES)])
    return looks
