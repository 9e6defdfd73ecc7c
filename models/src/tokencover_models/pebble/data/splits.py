"""Which seeds belong to which split; no seed belongs to two."""

from __future__ import annotations

from typing import Final

from tokencover.errors import InputError
from tokencover_models.pebble import NUM_TEST_SCENES

FIRST_SEED: Final = {"test": 0, "validation": 1_000_000, "train": 10_000_000}
SPLIT_SCENES: Final = {"test": NUM_TEST_SCENES, "validation": 200}
SEEDS_PER_STAGE: Final = 10_000_000
SEEDS_PER_RUN: Final = 10 * SEEDS_PER_STAGE


def list_seeds(split: str, count: int | None = None, first: int = 0) -> range:
    """List the seeds of a split's scenes, or of its clips.

    Parameters
    ----------
    split
        ``"test"``, ``"validation"`` or ``"train"``.
    count
        How many, from the first; by default the whole split (training has no end, so there a
        count is needed).
    first
        Number of the first one.
    """
    if split not in FIRST_SEED:
        raise InputError(f"no split is called {split!r}; choose from {tuple(FIRST_SEED)}")
    if count is None:
        if split not in SPLIT_SCENES:
            raise InputError(f"the {split} split has no end; pass count, for example count=100")
        count = SPLIT_SCENES[split]
    limit = SEEDS_PER_RUN if split == "train" else FIRST_SEED["validation"]
    if not 0 < count <= limit:
        raise InputError(f"count must be from 1 to {limit:,}, got {count}")
    if not 0 <= first <= limit - count:
        raise InputError(f"first must be from 0 to {limit - count:,}, got {first}")
    return range(FIRST_SEED[split] + first, FIRST_SEED[split] + first + count)


def get_training_seed(run: int, stage: int, index: int) -> int:
    """Seed of one training scene: each run and each stage sees its own."""
    return FIRST_SEED["train"] + run * SEEDS_PER_RUN + stage * SEEDS_PER_STAGE + index
