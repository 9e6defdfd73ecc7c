"""VideoLLaMA 3's processor leaves out those tokens of a frame that look as in the frame before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, NEVER, built, left_over, logits
from tests.zoo import ZOO, Inputs
from tests.zoo.oracle import blocked_forward_schedule, recompute_greedy
from tests.zoo.vocabulary import PAD, VIDEO
from tokencover.errors import InputError
from tokencover.families import FAMILIES, Media
from tokencover.pruning.prune import prune

ENTRY = ZOO["video_llama_3"]


def compress(inputs: Inputs) -> tuple[Inputs, Tensor]:
    """Leave out every third token of the videos; rows are filled up on the left again."""
    is_video = inputs["input_ids"] == VIDEO
    mask = torch.arange(int(is_video.sum())) % 3 != 1
    stays = torch.ones_like(is_video)
    stays[is_video] = mask
    ids, real = (torch.full_like(inputs["input_ids"], fill) for fill in (PAD, 0))
    for row, kept in enumerate(stays):
        count = int(kept.sum())
        ids[row, -count:] = inputs["input_ids"][row, kept]
        real[row, -count:] = inputs["attention_mask"][row, kept]
    short = {"input_ids": ids, "attention_mask": real, "video_compression_mask": mask}
    return {**inputs, **short}, mask


@pytest.mark.parametrize("kind", ["video", "image_and_video"])
@pytest.mark.parametrize("stages", [(0,), (1, 3)])
def test_dropping_equals_blocking(kind: str, stages: tuple[int, ...]) -> None:
    model = built("video_llama_3")
    inputs, _ = compress(ENTRY.inputs(kind, "left"))
    method = KeepRandom(BUDGET, stages)
    gone = dropped_by(method, inputs, ENTRY.visual(inputs))
    found = logits(model, inputs, method, ENTRY.user_words(inputs))
    left = left_over(inputs, gone)
    expected = blocked_forward_schedule(model, inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("way", ["forward", "generate"])
def test_tokens_that_are_left_keep_their_places(way: str) -> None:
    model: Any = built("video_llama_3")
    whole = ENTRY.inputs("video", "left")
    inputs, mask = compress(whole)
    found = []
    for each in (whole, inputs):
        with torch.no_grad(), prune(model, KeepRandom(None), prompt=ENTRY.user_words(each)) as run:
            if way == "forward":
                model(**each)
            else:
                model.generate(**each, max_new_tokens=2, do_sample=False)
        found.append(torch.cat([trace.grid_locations for trace in run.trace]))
    assert torch.equal(found[0][mask], found[1])


def test_cached_decoding_equals_recomputation() -> None:
    model: Any = built("video_llama_3")
    inputs, _ = compress(ENTRY.inputs("video", "left"))
    method = KeepRandom(BUDGET, (1,))
    dropped = dropped_by(method, inputs, ENTRY.visual(inputs))[1]
    with prune(model, method, prompt=ENTRY.user_words(inputs)):
        found = model.generate(**inputs, max_new_tokens=4, do_sample=False, eos_token_id=NEVER)
    expected = recompute_greedy(model, inputs, 4, dropped, 1)
    assert torch.equal(found[:, inputs["input_ids"].shape[1] :], expected)


def test_a_mask_of_other_videos_is_an_error() -> None:
    grids = {"video_grid_thw": [[2, 4, 4]], "video_merge_sizes": [2]}
    find_layouts = FAMILIES["videollama 3"].layouts
    for length in (5, 7, 9):
        mask = {"video_compression_mask": torch.ones(length, dtype=torch.bool)}
        with pytest.raises(InputError, match=f"has {length} entries, but the videos have 8 tokens"):
            find_layouts(Media(None, None, grids, mask))
    mask = {"video_compression_mask": torch.ones(16, dtype=torch.bool)}  # two beams
    assert len(find_layouts(Media(None, None, grids, mask))[1][0]) == 8
