"""Methods with vision encoders that merge patches: attention in segments, merged tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.pruning.test_encoder import Read, encoded_in, views_of
from tests.zoo import ZOO
from tokencover.methods._shared import vision_tiles
from tokencover.methods._shared.vision_tiles import compute_patch_attention
from tokencover.methods.base import View
from tokencover.methods.visionzip import VisionZip


def slow_received(queries: Tensor, keys: Tensor, segments: list[int]) -> list[list[float]]:
    """Attention each token gets from all of its crop, by head; from its own segment, that is."""
    here = [place for place, segment in enumerate(segments) if segment >= 0]
    found = []
    for query, key in zip(queries, keys, strict=True):
        sums = [0.0] * len(segments)
        for asking in here:
            seen = [place for place in here if segments[place] == segments[asking]]
            products = [float(query[asking].double() @ key[place].double()) for place in seen]
            weights = torch.tensor(products).mul(0.6).softmax(0).tolist()
            for place, weight in zip(seen, weights, strict=True):
                sums[place] += weight / len(here)
        found.append(sums)
    return found


@pytest.mark.parametrize("size", [2**22, 7])
def test_attention_received_in_segments(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vision_tiles, "MAP_SIZE", size)  # a few rows of the map at a time
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(3, 2, 9, 4, generator=generator) for _ in range(2))
    segments = torch.tensor([[0] * 9, [4, 4, 4, 7, 7, 7, 7, 4, 4], [1, 1, 2, 2, 2, -1, -1, -1, -1]])
    rows = compute_patch_attention(queries, keys, 0.6, 0, segments)
    for crop in range(3):
        expected = slow_received(queries[crop], keys[crop], segments[crop].tolist())
        torch.testing.assert_close(rows[crop], torch.tensor(expected), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        compute_patch_attention(queries[:1], keys[:1], 0.6, 0), rows[:1], atol=1e-7, rtol=1e-5
    )


def test_a_class_token_attends_to_its_segment() -> None:
    queries, keys = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
    segments = torch.tensor([[3, 3, 3, 3, -1, -1]])
    rows = compute_patch_attention(queries, keys, 0.6, 1, segments)
    whole = compute_patch_attention(queries[:, :, :4], keys[:, :, :4], 0.6, 1)
    torch.testing.assert_close(rows[..., :3], whole)
    assert not bool(rows[..., 3:].any())


def slow_visionzip_of(view: View, sample: int, crop: int, count: int) -> dict[int, Tensor]:
    """The state of each slot that is kept of a crop whose tokens are folded."""
    encoded = encoded_in(view)
    slots = [
        slot
        for slot, place in enumerate(encoded.index[sample].tolist())
        if place >= 0 and place // encoded.features.shape[1] == crop
    ]
    block = encoded.feature_block
    rows = vision_tiles.compute_cell_attention(encoded, block)[crop].mean(0)
    keys = encoded.keys(block)[:, :, encoded.classes :].mean(1)
    keys = encoded.fold(keys.transpose(1, 2))[crop].T
    tokens, classes = encoded.features.shape[1], encoded.classes
    cell = {slot: int(encoded.index[sample, slot]) % tokens - classes for slot in slots}
    merged = int(count * 5 / 32 + 0.5)
    by_score = sorted(slots, key=lambda slot: (-float(rows[cell[slot]]), slot))
    found = {slot: view.hidden_states[sample, slot] for slot in by_score[: count - merged]}
    rest = [slot for slot in slots if slot not in found]
    step = max(1, len(rest) // max(1, merged))
    targets = rest[::step][:merged]
    joined: dict[int, list[int]] = {target: [] for target in targets}
    for slot in rest:
        if slot not in joined and targets:
            alike = [
                float(torch.cosine_similarity(keys[cell[slot]], keys[cell[target]], dim=0))
                for target in targets
            ]
            joined[targets[alike.index(max(alike))]].append(slot)
    for target, members in joined.items():
        state = view.hidden_states[sample, target]
        if members:
            state = state + view.hidden_states[sample, members].mean(0)
        found[target] = state
    return found


@pytest.mark.parametrize("name", ["qwen2_5_vl", "internvl"])
def test_visionzip_merges_what_was_folded(name: str) -> None:
    entry = ZOO[name]
    model: Any = entry.build()
    inputs = entry.inputs("two_images")
    depth = model.config.vision_config
    last = (getattr(depth, "depth", None) or depth.num_hidden_layers) - 1
    (view,) = views_of(model, inputs, Read(named=(last,)))
    choice = VisionZip(9, positions="original").choose(view)
    assert choice.hidden_states is not None
    crops = encoded_in(view).index // encoded_in(view).features.shape[1]
    for sample, kept in enumerate(choice.kept):
        mine = crops[sample][view.mask[sample]].unique().tolist()
        details = choice.details[sample]["crop_budgets"]
        expected: dict[int, Tensor] = {}
        for crop, count in zip(mine, details, strict=True):
            expected |= slow_visionzip_of(view, sample, crop, count)
        assert sorted(kept.tolist()) == sorted(expected)
        for slot, state in expected.items():
            torch.testing.assert_close(
                choice.hidden_states[sample, slot], state, atol=1e-5, rtol=1e-5
            )
