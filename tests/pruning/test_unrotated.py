"""Decoder layers without rotary embedding (Muse, Cohere Compass) find the pass they are in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, left_over
from tests.pruning.test_modes import gradients
from tests.zoo import ZOO
from tests.zoo.oracle import blocked_forward
from tests.zoo.windows import FULL

NAMES = ["muse_glimmer", "cohere_compass"]


@pytest.mark.parametrize("name", NAMES)
def test_some_blocks_are_handed_none(name: str) -> None:
    entry = ZOO[name]
    model: Any = entry.build()
    seen = []
    for block in model.model.language_model.layers:
        block.register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["position_embeddings"] is None),
            with_kwargs=True,
        )
    with torch.no_grad():
        model(**entry.inputs("single"))
    assert seen == [kind == FULL for kind in model.config.text_config.layer_types]


@pytest.mark.parametrize("name", [*NAMES, "llama4"])
def test_gradient_checkpointing_gives_the_same_gradients(name: str) -> None:
    """Blocks run again in backward, after another pass: the states they get tell whose they are."""
    entry = ZOO[name]
    model = entry.build().train()
    inputs = entry.inputs("ragged")
    plain = gradients(model, inputs, entry.user_words(inputs))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    checkpointed = gradients(model, inputs, entry.user_words(inputs))
    assert any(value.abs().sum() > 0 for key, value in plain.items() if "vis" in key)
    for key, value in plain.items():
        torch.testing.assert_close(checkpointed[key], value, atol=1e-5, rtol=1e-3)


def test_the_same_embeddings_in_two_passes_are_two_passes() -> None:
    """Block 0 is handed the caller's own tensor: what was dropped of it once means nothing now."""
    entry = ZOO["muse_glimmer"]
    model: Any = entry.build()
    text = model.config.text_config
    text.layer_types = [FULL, *text.layer_types[1:]]
    text.layer_rope_theta = [0, *text.layer_rope_theta[1:]]
    inputs = entry.inputs("ragged")
    visual, words = entry.visual(inputs), entry.user_words(inputs)
    with torch.no_grad():
        embeds = model.get_input_embeddings()(inputs["input_ids"])
        features = model.get_image_features(inputs["pixel_values"], inputs["image_grid_thw"])
        embeds[visual] = torch.cat(list(features.pooler_output))
        for budget in (3, BUDGET):
            method = KeepRandom(budget, (0,))
            with tc.prune(model, method, prompt=words, visual=visual):
                for _ in range(2):
                    found = model(
                        inputs_embeds=embeds, attention_mask=inputs["attention_mask"]
                    ).logits
            gone = dropped_by(method, inputs, visual)
            left = left_over(inputs, gone)
            expected = blocked_forward(model, inputs, gone[0], 0)
            torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("after", [1, 2])
def test_attention_is_read_with_the_rotations_that_a_block_has(after: int) -> None:
    """EXAONE 4.5 rotates in blocks with windows only."""
    entry = ZOO["exaone4_5"]
    model, inputs = entry.build("eager"), entry.inputs("single")
    visual = entry.visual(inputs)[0]
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions[after - 1]
        with tc.prune(model, tc.FastV(6, after=after), prompt=entry.user_words(inputs)) as run:
            model(**inputs)
    scores = weights[0].mean(0)[-1, visual]
    torch.testing.assert_close(scores[run.trace[0].kept].sum(), scores.topk(6).values.sum())


def test_attention_of_a_block_that_is_told_no_rotations_is_not_read() -> None:
    entry = ZOO["cohere_compass"]
    with pytest.raises(tc.InputError, match=r"layer 1 cannot be .* gets no rotary embedding"):
        tc.prune(entry.build(), tc.FastV(6, after=2), prompt=torch.zeros(1, 1))
