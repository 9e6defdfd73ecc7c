"""Inputs and configurations that do not fit together."""

from __future__ import annotations

import pytest
import torch

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, left_over
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tests.zoo.oracle import blocked_forward
from tests.zoo.vocabulary import IMAGE, VIDEO


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen3_vl", "llava_onevision", "video_llava"])
def test_a_video_token_without_a_video_is_text(name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    inputs = entry.inputs("ragged")
    method = KeepRandom(BUDGET)
    gone = dropped_by(method, inputs, entry.visual(inputs))
    assert entry.video_token_id is not None
    inputs["input_ids"][:, -2] = entry.video_token_id
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
        found = model(**inputs, use_cache=False).logits
    expected = blocked_forward(model, inputs, gone[1], 1)
    left = left_over(inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)
    assert [len(trace.kept) for trace in run.trace] == [BUDGET] * len(gone[1])


def test_frames_that_are_written_as_images_are_visual_and_a_video_token_is_text() -> None:
    """GLM-4V says so; a video token among its words stays a word."""
    variant = VARIANTS["glm4v, video"]
    model, inputs = variant.build(), {**variant.inputs}
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][:, -2] = VIDEO
    visual = inputs["input_ids"] == IMAGE
    method = KeepRandom(BUDGET, (1,))
    gone = dropped_by(method, inputs, visual)
    with torch.no_grad(), tc.prune(model, method, prompt=~visual) as run:
        found = model(**inputs, use_cache=False).logits
    left = left_over(inputs, gone)
    expected = blocked_forward(model, inputs, gone[1], 1)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)
    assert [trace.visual_tokens for trace in run.trace] == [int(visual.sum())] == [12]


def test_convolutions_that_add_to_padding_are_refused() -> None:
    model = ZOO["lfm2_vl"].build(layers=2)
    model.config.text_config.conv_bias = True
    with pytest.raises(tc.TokenCoverError, match="conv_bias is True"):
        tc.prune(model, KeepRandom(BUDGET))


def test_an_unused_window_is_no_obstacle() -> None:
    entry = ZOO["llava"]
    model = entry.build()
    model.config.text_config.sliding_window = 16
    inputs = entry.inputs("ragged")
    method = KeepRandom(BUDGET)
    gone = dropped_by(method, inputs, entry.visual(inputs))
    with torch.no_grad(), tc.prune(model, method, prompt=entry.user_words(inputs)):
        found = model(**inputs, use_cache=False).logits
    expected = blocked_forward(model, inputs, gone[1], 1)
    left = left_over(inputs, gone)
    torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)
