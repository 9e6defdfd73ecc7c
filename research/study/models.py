"""Models of the study: pebble with several training seeds, its video model, and boulder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from research.study.plan import CHOICES, EVERY, METHODS, MODES, Amount, build_amounts, name_costs
from tokencover.budget import BudgetMode
from tokencover.errors import InputError
from tokencover.evaluation import load_model
from tokencover.methods import Spec
from tokencover_models.pebble.data import CLIP_TOKENS, PICTURE_TOKENS

MODELS: Final = Path(__file__).parents[1] / "seeds"
"""Models of other training seeds than the bundled one's."""
BUNDLED: Final = "seed1"
BOULDER: Final = "boulder"
CLIPS: Final = "clips"
SEEDS: Final = (BUNDLED, "seed0", "seed2")
"""Pebble's models for images, by their seeds of training; the first one's is bundled."""
USUAL: Final = (*SEEDS, CLIPS)
WITHOUT_TWIGS: Final = tuple(name for name in METHODS if name != "twigvlm")
"""Twigs are trained for pebble's images."""
Choices = Mapping[str, tuple[dict[str, Any], ...]]


@dataclass(frozen=True)
class Judge:
    """A model, and what it is asked.

    Attributes
    ----------
    name
        Of its folders.
    model
        A bundled one's name, or where it lies.
    seed
        Of its training; None if the model comes with the package.
    scenes, validation
        How many it is asked about in the test, and how many settings are chosen with.
    benchmark, tokens
        What it is asked, and the visual tokens of a question.
    kinds
        Of questions; by default all of the benchmark's.
    methods, also
        Those it is asked about, by name, and more of them with other settings.
    choices
        Settings that are tried on validation scenes.
    every
        How many kinds of questions each scene is asked one of, by mode.
    costs
        What the costs are called, high ones first, by mode.
    """

    name: str
    model: str
    seed: int | None = None
    scenes: int = 100
    validation: int = 40
    benchmark: str = "pebble"
    tokens: int = PICTURE_TOKENS
    kinds: tuple[str, ...] = ()
    methods: tuple[str, ...] = METHODS
    also: tuple[Spec, ...] = ()
    choices: Choices = field(default_factory=lambda: CHOICES)
    every: Mapping[BudgetMode, int] = field(default_factory=lambda: EVERY)
    costs: Mapping[BudgetMode, tuple[str, ...]] = field(
        default_factory=lambda: {mode: name_costs(mode) for mode in MODES}
    )

    @property
    def title(self) -> str:
        """What tables call it."""
        return self.name.replace("seed", "seed ")

    def build_amounts(self, mode: BudgetMode) -> list[Amount]:
        """The budgets of its costs."""
        amounts = _build_all_amounts(self.model, mode, self.tokens)
        return [each for each in amounts if each.cost in self.costs[mode]]


@cache
def _build_all_amounts(model: str, mode: BudgetMode, tokens: int) -> list[Amount]:
    """Loads the model, which is asked for more than once."""
    return build_amounts(load_model(model).model, mode, tokens)


def get_test_model(name: str) -> Judge:
    """One by name: "seed" and a number, "videos" or "boulder"."""
    if name in ASKED_ELSE:
        return ASKED_ELSE[name]
    if not re.fullmatch(r"seed\d+", name):
        raise InputError(
            f'judge {name!r} is not known: name "seed0" (or another seed of training), '
            f'"{CLIPS}" or "{BOULDER}".'
        )
    if name == BUNDLED:
        return Judge(name, "pebble")
    # Results name the model and are read elsewhere: no path of this machine.
    return Judge(name, os.path.relpath(MODELS / name), seed=int(name.removeprefix("seed")))


ASKED_ELSE: Final = {
    CLIPS: Judge(
        CLIPS,
        model="pebble-clips",
        scenes=40,
        validation=20,
        benchmark="pebble-clips",
        tokens=CLIP_TOKENS,
        methods=WITHOUT_TWIGS,
    ),
    # Its decoder is some fifty times as large as pebble's, so there is less of everything. Means
    # over thirty blocks come to the same as operations, within three tokens in every block.
    BOULDER: Judge(
        BOULDER,
        model=BOULDER,
        validation=14,
        # What it has learned: of `animal_name` and `empty` it knows too little to lose any.
        kinds=(
            *("exist", "color", "shape", "read", "where", "animal_color"),
            *("common_color", "common_shape", "more", "side", "level", "place"),
        ),
        methods=WITHOUT_TWIGS,
        # Places are chosen at the cost of K = 64; at the lowest one a block on all tokens leaves
        # little for the others.
        also=({"method": "mob", "after": 0},),
        choices={
            **CHOICES,
            "mob_stages": (
                {"folded": 0.3},
                {"folded": 0.3, "stages": (0, 8)},
                {"folded": 0.3, "stages": (0, 12)},
            ),
            "pyramiddrop": ({}, {"stages": (1, 4, 10)}, {"stages": (2, 6, 12)}),
            "sparsevlm": ({}, {"stages": (1, 4, 10)}, {"stages": (2, 6, 12)}),
        },
        every={"flops": 6, "exact": 12},
        costs={
            "flops": ("K = 192", "K = 128", "K = 64", "K = 32", "32 everywhere"),
            "exact": name_costs("exact"),
        },
    ),
}
"""Those that are not image model of pebble's."""
