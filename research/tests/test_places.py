"""Places are reported in words that mean them, and nothing else is changed by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small_base import make_base, write_base

from research.boulder_training.assembly import Boulder, see
from research.boulder_training.places import list_place_vectors, teach_places
from tokencover_models.boulder.model import assemble, merge_low_rank, read_base_model
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.data import GRID, draw_scene, make_scene
from tokencover_models.pebble.model import normalise_pictures

CELLS = 6


@pytest.fixture
def boulder(tmp_path: Path) -> Boulder:
    """Pebble's vision encoder, a random projector, a small decoder."""
    base = read_base_model(write_base(make_base(), tmp_path / "small.gguf"))
    tower: Any = load_pebble()[0].model.vision_tower
    torch.manual_seed(3)
    weights = {
        **merge_low_rank(base.weights, {}),
        **{f"model.vision_tower.{name}": each for name, each in tower.state_dict().items()},
        "model.multi_modal_projector.linear_1.weight": torch.randn(96, 128) / 10,
        "model.multi_modal_projector.linear_1.bias": torch.zeros(96),
        "model.multi_modal_projector.linear_2.weight": torch.randn(96, 96) / 10,
        "model.multi_modal_projector.linear_2.bias": torch.zeros(96),
    }
    tokenizer = base.make_tokenizer()
    return Boulder(assemble(base, weights, tokenizer), None, tokenizer)


def test_a_row_and_a_column_are_told_apart(boulder: Boulder) -> None:
    places = list_place_vectors(boulder).view(GRID, GRID, -1)
    for one, other in [((2, 5), (1, 4)), ((0, 8), (20, 8)), ((9, 12), (12, 9))]:
        same = [place * CELLS // GRID for place in one] == [
            place * CELLS // GRID for place in other
        ]
        assert torch.equal(places[one], places[other]) == same


def test_the_projector_adds_where_a_patch_lies(boulder: Boulder) -> None:
    scene = make_scene(2_000_000)  # of no split, and not among those it learns from
    projector: Any = boulder.llava.model.multi_modal_projector
    before = {name: each.clone() for name, each in boulder.llava.state_dict().items()}
    with torch.inference_mode():
        features = see(boulder.llava, normalise_pictures([draw_scene(scene)]))[0]
        plain = projector(features)
    teach_places(boulder)
    with torch.inference_mode():
        added = projector(features) - plain
    changed = {
        name
        for name, each in boulder.llava.state_dict().items()
        if not torch.equal(each, before[name])
    }
    assert changed == {
        f"model.multi_modal_projector.linear_2.{part}" for part in ("weight", "bias")
    }
    wanted = list_place_vectors(boulder)
    told = torch.cdist(added, wanted).argmin(1)
    cell = torch.arange(GRID) * CELLS // GRID
    rows, columns = cell[told // GRID], cell[told % GRID]
    right = (rows == cell.repeat_interleave(GRID)) & (columns == cell.repeat(GRID))
    assert right.float().mean() > 0.5, "by chance one of 36 is right"
