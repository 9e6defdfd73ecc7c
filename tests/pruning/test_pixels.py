"""What encoder calls leave behind is held, for each thread, as long as it is needed."""

from __future__ import annotations

import inspect
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from tests.pruning.test_encoder import Read, check_projected
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.pruning.prune import prune


@pytest.mark.parametrize("name", sorted(ZOO))
def test_pixels_are_not_held_behind_the_pass(name: str) -> None:
    model, inputs = built(name), dict(ZOO[name].inputs("ragged"))
    method = Read(named=None)
    with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
        model(**inputs)
        model(**inputs)
        assert torch.equal(method.seen[0].row, method.seen[1].row)
        pixels = weakref.ref(inputs["pixel_values"])
        inputs.clear()
        assert pixels() is None


@pytest.mark.parametrize("name", ["llava", "idefics3", "qwen2_vl"])
def test_features_of_one_encoder_call_serve_two_passes(name: str) -> None:
    model: Any = built(name)
    inputs = dict(ZOO[name].inputs("ragged"))
    method = Read(named=None)
    with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
        encode = model.model.get_image_features
        wanted = inspect.signature(encode).parameters
        given = {key: value for key, value in inputs.items() if key in wanted}
        features = {"image": encode(**given, return_dict=True)}
        text = {key: value for key, value in inputs.items() if key != "pixel_values"}
        first, second = (model(**text, mm_encoder_outputs=features).logits for _ in range(2))
        assert len(method.seen) == 2
        assert torch.equal(first, second)
        assert torch.equal(first, model(**inputs).logits)


def test_what_was_encoded_waits_in_its_own_thread() -> None:
    model: Any = built("llava")
    mine, other = (dict(ZOO["llava"].inputs(kind)) for kind in ("single", "two_images"))
    method = Read()

    def run_other() -> None:
        with torch.no_grad():
            model(**other)

    with torch.no_grad(), prune(model, method, prompt=torch.zeros(1, 1)) as run:
        run._pass_reader._selector = lambda input_ids, visual: torch.zeros_like(visual)
        features = {"image": model.model.get_image_features(mine.pop("pixel_values"))}
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run_other).result()
        model(**mine, mm_encoder_outputs=features)
    for view, crops in zip(method.seen, (4, 1), strict=True):
        assert view.vision is not None
        assert len(view.vision.features) == crops
        check_projected(view, 0)


def test_what_no_stage_took_is_dropped() -> None:
    model, inputs = built("llava"), ZOO["llava"].inputs("single")
    method = Read(stages=())
    with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])) as run:
        model(**inputs)
        assert run._reader is not None
        assert run._state.reading.image is None
