"""Methods that act inside vision encoders, in real tiny models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.methods.test_ficoco import slow_ficoco
from tests.methods.test_tome import slow_tome
from tests.methods.vision_views import vision_view
from tests.zoo import ZOO
from tests.zoo.entry import Inputs
from tokencover.errors import InputError
from tokencover.methods._shared.vision_merging import VisionMergingMethod
from tokencover.methods.base import VisionView
from tokencover.methods.ficoco import FiCoCoV
from tokencover.methods.tome import ToMe
from tokencover.pruning import prune
from tokencover.pruning.trace import Trace

Slow = Callable[[VisionView, int, int], tuple[list[int], list[list[float]]]]


def pruned(
    model: PreTrainedModel, inputs: Inputs, method: VisionMergingMethod
) -> tuple[Any, list[Trace]]:
    words = torch.zeros_like(inputs["input_ids"])
    with torch.no_grad(), prune(model, method, prompt=words) as run:
        output = model(**inputs, use_cache=False)
    return output, list(run.trace)


def without_newlines(trace: Trace) -> int:
    return int((trace.row >= 0).sum())


@pytest.mark.parametrize("kind", [ToMe, FiCoCoV])
def test_exact_counts_for_single_crops(kind: type[VisionMergingMethod]) -> None:
    entry = ZOO["llava"]
    model = entry.build()
    for media, images in (("single", 1), ("ragged", 1), ("two_images", 2), ("mixed", 1)):
        for budget, left in ((25, 25), (24, 24), (10, 10), (0.5, 13)):
            _, traces = pruned(model, entry.inputs(media), kind(budget))
            for trace in traces:
                assert len(trace.kept) == images * left
                assert trace.tokens_per_layer == [images * left] * 5


@pytest.mark.parametrize("kind", [ToMe, FiCoCoV])
def test_exact_counts_for_tiles(kind: type[VisionMergingMethod]) -> None:
    entry = ZOO["llava_next"]
    model = entry.build()
    _, (trace,) = pruned(model, entry.inputs("single"), kind(23))
    # Five crops of 9 tokens keep 4 each; the model may cut some of the tiles' off as padding.
    assert int((trace.frame == 0).sum()) == 4
    assert 4 < without_newlines(trace) <= 20
    assert without_newlines(trace) < len(trace.kept)
    _, traces = pruned(model, entry.inputs("ragged"), kind(0.5))
    assert [int((each.frame == 0).sum()) for each in traces] == [5, 5, 5]
    with pytest.raises(InputError, match=r"2, 3, 5 crops: use a fraction"):
        pruned(model, entry.inputs("ragged"), kind(23))


@pytest.mark.parametrize("kind", [ToMe, FiCoCoV])
def test_exact_counts_for_frames(kind: type[VisionMergingMethod]) -> None:
    entry = ZOO["video_llava"]
    model = entry.build()
    _, traces = pruned(model, entry.inputs("video"), kind(11))
    for trace in traces:  # two frames share 11, and their class tokens stay
        places = trace.row >= 0
        assert trace.frame[places].tolist() == [0] * 5 + [1] * 5
        assert int((~places).sum()) == 2
    _, traces = pruned(model, entry.inputs("image_and_video"), kind(11))
    assert [without_newlines(each) for each in traces] == [11, 21]


def slow_features(
    model: Any, pixels: Tensor, slow: Slow, removals: dict[int, int], proportional: bool
) -> Tensor:
    """What LLaVA's decoder gets for one image, ``(k, d)``: the vision encoder block by block."""
    tower = model.model.vision_tower
    states = tower.pre_layrnorm(tower.embeddings(pixels[None]))
    sizes = torch.ones(states.shape[:2], dtype=torch.int64)
    members = torch.arange(states.shape[1]).unsqueeze(0)
    for number, block in enumerate(tower.encoder.layers[:-1]):
        normed, attention = block.layer_norm1(states), block.self_attn
        queries, keys, values = (
            layer(normed).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)
            for layer in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        logits = queries @ keys.transpose(2, 3) / keys.shape[-1] ** 0.5
        if proportional:
            logits = logits + sizes.log()[:, None, None]
        weights = logits.softmax(-1)
        attended = (weights @ values).transpose(1, 2).flatten(2)
        states = states + attention.out_proj(attended)
        if number in removals:
            view = vision_view(
                (5, 5), hidden_states=states, sizes=sizes, members=members,
                keys=lambda keys=keys: keys, attention=lambda weights=weights: weights.mean(1),
            )  # fmt: skip
            groups, merged = slow(view, 0, removals[number])
            states, joined = torch.tensor([merged]), torch.tensor([groups])
            sizes = sizes.new_zeros(states.shape[:2]).scatter_add(1, joined, sizes)
            members = joined.gather(1, members)
        states = states + block.mlp(block.layer_norm2(states))
    order = list(dict.fromkeys(members[0, 1:].tolist()))
    features: Tensor = model.model.multi_modal_projector(states[0, order])
    return features


@pytest.mark.parametrize(
    ("method", "slow", "removals"),
    [
        (ToMe(10), slow_tome, {0: 8, 1: 7}),
        (ToMe(10, inflect=-0.6), slow_tome, {0: 12, 1: 3}),
        (FiCoCoV(10), slow_ficoco, {1: 15}),
    ],
    ids=["tome", "decreasing", "ficoco"],
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_answers_equal_manual_encoder_and_decoder(
    method: VisionMergingMethod, slow: Slow, removals: dict[int, int], attention: str
) -> None:
    entry = ZOO["llava"]
    model: Any = entry.build(attention)
    inputs = entry.inputs("single")
    output, _ = pruned(model, inputs, method)
    with torch.no_grad():
        image = slow_features(
            model, inputs["pixel_values"][0], slow, removals, method.proportional_attention
        )
        assert len(image) == 10
        ids = inputs["input_ids"][0]
        words = model.get_input_embeddings()(ids)
        visual = entry.visual(inputs)[0]
        begin, end = int(visual.nonzero()[0]), int(visual.nonzero()[-1]) + 1
        sequence = torch.cat([words[:begin], image, words[end:]])[None]
        states = model.model.language_model(inputs_embeds=sequence).last_hidden_state
        expected = model.lm_head(states)[0, -1]
    torch.testing.assert_close(output.logits[0, -1], expected, atol=2e-5, rtol=0)
