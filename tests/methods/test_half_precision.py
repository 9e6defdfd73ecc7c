"""Methods select the same tokens from half-precision inputs as from the same values in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.cases import CASES, Case
from tests.methods.crops import WIDTH, Tiled, random_tower, seen
from tests.methods.vision_views import vision_view
from tokencover.methods import Choice, View, VisionView
from tokencover.methods._shared.vision_merging import VisionMergingMethod

DEPTH, TEXT, STATE, HEADS = 5, 40, 64, 2
HALVES = [torch.float16, torch.bfloat16]


class Rounded:
    """Rounds tensors to a half-precision type, and returns them in it or in float32."""

    def __init__(self, half: torch.dtype, dtype: torch.dtype) -> None:
        self.half, self.dtype = half, dtype

    def __call__(self, values: Tensor) -> Tensor:
        return values.to(self.half).to(self.dtype)

    def view(self, view: View) -> View:
        vision = view.vision
        assert vision is not None
        return replace(
            view,
            hidden_states=self(view.hidden_states),
            prompt=self(view.prompt),
            text=self(view.text),
            keys=lambda *given, **more: self(view.keys(*given, **more)),
            notes=dict(view.notes),
            vision=replace(
                vision,
                features=self(vision.features),
                queries=lambda block: self(vision.queries(block)),
                keys=lambda block: self(vision.keys(block)),
                project=lambda features: self(vision.project(features.float())),
            ),
        )

    def vision_view(self, view: VisionView) -> VisionView:
        keys = self(view.keys())
        return replace(view, hidden_states=self(view.hidden_states), keys=lambda: keys)


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def project(features: Tensor) -> Tensor:
    return torch.tanh(features.float() @ noise(WIDTH, STATE, seed=9))


def make_view(seed: int, classes: int, newlines: bool) -> View:
    """Two samples with a base view and four tiles of 6 x 6 cells each, and many text tokens."""
    tower = replace(random_tower(10, side=6, classes=classes, seed=seed), project=project)
    view, _ = seen(tower, [[Tiled()], [Tiled()]], newlines=newlines)
    samples, count, _ = view.hidden_states.shape
    text = noise(samples, TEXT, STATE, seed=seed + 1) * 0.3
    mask = torch.ones(samples, TEXT, dtype=torch.bool)
    positions = torch.arange(count + 2, count + 2 + TEXT).expand(samples, -1)

    def attention(layer: int, queries: Tensor) -> Tensor:
        logits = noise(samples, HEADS, count + TEXT + 2, count, seed=layer)
        rows = logits.softmax(-1)[torch.arange(samples).unsqueeze(-1), :, queries.clamp(min=0)]
        return rows.transpose(1, 2) * (queries >= 0)[:, None, :, None]

    def keys(layer: int, places: Tensor | None = None, *, rotated: bool = False) -> Tensor:
        return noise(samples, HEADS, count if places is None else places.shape[1], 8, seed=layer)

    def ahead(layers: Sequence[Any], queries: Tensor) -> Tensor:
        return attention(len(layers), queries)

    return replace(
        view, num_layers=DEPTH, text=text, text_mask=mask, text_positions=positions, prompt=text,
        prompt_mask=mask, prompt_positions=positions, last=positions[:, -1], keys=keys,
        attention=attention, ahead=ahead,
    )  # fmt: skip


def assert_same(half: Choice, exact: Choice, dtype: torch.dtype) -> None:
    assert [index.tolist() for index in half.kept] == [index.tolist() for index in exact.kept]
    assert (half.sources is None) == (exact.sources is None)
    for mine, expected in zip(half.sources or (), exact.sources or (), strict=True):
        assert torch.equal(mine, expected)
    if half.hidden_states is not None and exact.hidden_states is not None:
        assert half.hidden_states.dtype == dtype
        error = 4 * torch.finfo(dtype).eps  # merged features are rounded before they are projected
        for sample, kept in enumerate(half.kept):
            mine, expected = (
                each[sample, kept].float() for each in (half.hidden_states, exact.hidden_states)
            )
            torch.testing.assert_close(mine, expected, atol=error, rtol=error)


@pytest.mark.parametrize("half", HALVES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_choices_in_half_precision(case: Case, half: torch.dtype) -> None:
    method = case.make()
    for seed in range(8):
        classes = 1 if "class token" in method.card.needs else seed % 2
        if isinstance(method, VisionMergingMethod):
            assert_same_merges(method, half, seed, classes)
            continue
        view = make_view(10 * seed, classes, newlines=method.drops_newlines)
        for layer in method.pruning_layers(DEPTH):
            view = replace(view, layer_idx=layer)
            inputs = [Rounded(half, dtype).view(view) for dtype in (half, torch.float32)]
            choices = [method.choose(each) for each in inputs]
            assert_same(choices[0], choices[1], half)
            assert str(inputs[0].notes) == str(inputs[1].notes)
            view.notes.update(inputs[1].notes)


def assert_same_merges(
    method: VisionMergingMethod, half: torch.dtype, seed: int, classes: int
) -> None:
    view = vision_view(
        (8, 8), crops=(1, 1), classes=classes, depth=2, feature_block=1, seed=seed, block=1
    )
    mine, expected = (
        method.merge_in_vision_encoder(Rounded(half, dtype).vision_view(view))
        for dtype in (half, torch.float32)
    )
    assert torch.equal(mine.groups, expected.groups)
    assert mine.hidden_states.dtype == half
    torch.testing.assert_close(mine.hidden_states, expected.hidden_states.to(half))
