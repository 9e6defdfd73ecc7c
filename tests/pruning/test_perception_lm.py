"""PerceptionLM's videos: the model encodes them with its image encoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, built, left_over, logits
from tests.zoo import ZOO, Inputs
from tests.zoo.entry import noise
from tests.zoo.oracle import blocked_forward_schedule, recompute_greedy
from tests.zoo.perception_lm import CROP, GRID
from tests.zoo.vocabulary import IMAGE, VIDEO, words
from tokencover.errors import InputError
from tokencover.families import FAMILIES, Media
from tokencover.pruning.prune import prune

ENTRY = ZOO["perception_lm"]
FRAMES = 3
OF_VIDEO = FRAMES * GRID.rows * GRID.columns


def make_inputs(kind: str) -> Inputs:
    """A row with a video, and before it one image or none."""
    image = [IMAGE] * GRID.tokens if kind == "both" else []
    ids = torch.tensor([[*words(1, 3), *image, *words(2, 2), *[VIDEO] * OF_VIDEO, *words(3, 4)]])
    found = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values_videos": noise(5, 1, FRAMES, 3, CROP, CROP),
    }
    if image:
        found["pixel_values"] = noise(6, 1, GRID.frames, 3, CROP, CROP)
    return found


@pytest.mark.parametrize("stages", [(0,), (1, 3)])
@pytest.mark.parametrize("kind", ["video", "both"])
def test_dropping_equals_blocking(kind: str, stages: tuple[int, ...]) -> None:
    model, inputs = built("perception_lm"), make_inputs(kind)
    method = KeepRandom(BUDGET, stages)
    gone = dropped_by(method, inputs, ENTRY.visual(inputs))
    found = logits(model, inputs, method, ENTRY.user_words(inputs))
    left = left_over(inputs, gone)
    expected = blocked_forward_schedule(model, inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", ["forward", "generate"])
@pytest.mark.parametrize("kind", ["video", "both"])
def test_places_are_those_of_the_frames_and_tiles(kind: str, way: str) -> None:
    model: Any = built("perception_lm")
    inputs = make_inputs(kind)
    with torch.no_grad(), prune(model, KeepRandom(None), prompt=ENTRY.user_words(inputs)) as run:
        if way == "forward":
            model(**inputs)
        else:
            model.generate(**inputs, max_new_tokens=2, do_sample=False)
    shapes = [GRID._replace(frames=FRAMES)] if kind == "video" else [GRID, GRID._replace(frames=3)]
    places = [
        [medium, frame, row, column]
        for medium, (frames, rows, columns) in enumerate(shapes)
        for frame in range(frames)
        for row in range(rows)
        for column in range(columns)
    ]
    assert run.trace[0].grid_locations.tolist() == places


@pytest.mark.parametrize("kind", ["video", "both"])
def test_cached_decoding_equals_recomputation(kind: str) -> None:
    model: Any = built("perception_lm")
    inputs = make_inputs(kind)
    method = KeepRandom(BUDGET, (1,))
    dropped = dropped_by(method, inputs, ENTRY.visual(inputs))[1]
    with prune(model, method, prompt=ENTRY.user_words(inputs)):
        found = model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=NEVER)
    expected = recompute_greedy(model, inputs, 5, dropped, 1)
    assert torch.equal(found[:, inputs["input_ids"].shape[1] :], expected)


class Encoder:
    """The configuration of a timm vision encoder."""

    def __init__(self, architecture: str) -> None:
        self.architecture = architecture


class Config:
    """As much of a configuration as layouts read."""

    projector_pooling_ratio = 2

    def __init__(self, architecture: str) -> None:
        self.vision_config = Encoder(architecture)


def test_patches_are_as_large_as_the_name_of_the_encoder_says() -> None:
    pixels = {"pixel_values": torch.empty(1, 2, 3, 448, 448, device="meta")}
    find_layouts = FAMILIES["perceptionlm"].layouts
    images, videos = find_layouts(Media(Config("vit_pe_core_large_patch14_336"), pixels))
    assert ([image.shape for image in images], videos) == ([(2, 16, 16)], [])
    with pytest.raises(InputError, match="has no patch size"):
        find_layouts(Media(Config("resnet50"), pixels))
