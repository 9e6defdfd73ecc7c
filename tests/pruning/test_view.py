"""The view of a padded batch, compared with its inputs one field at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.families import family_of
from tokencover.methods import Choice, View


@dataclass(frozen=True)
class RecordView(KeepRandom):
    """Keeps random tokens, and the views that it gets."""

    reads_prompt = True

    views: list[View] = field(default_factory=list)

    def choose(self, view: View) -> Choice:
        self.views.append(view)
        return super().choose(view)


def list_positions(mask: Tensor) -> list[int]:
    """Positions where a row of a mask is True."""
    positions: list[int] = mask.nonzero().squeeze(-1).tolist()
    return positions


@pytest.mark.parametrize("name", ["llava", "llava_next", "smolvlm"])
@pytest.mark.parametrize("layer", [0, 1])
def test_view_of_a_padded_batch_matches_its_inputs(name: str, layer: int) -> None:
    entry, model = ZOO[name], built(name)
    inputs: dict[str, Any] = entry.inputs("ragged")
    real, visual = inputs["attention_mask"].bool(), entry.visual(inputs)
    prompt = entry.user_words(inputs)
    method = RecordView(4, (layer,))
    recorded: list[Tensor] = []
    block = family_of(model).layers(model)[layer]
    handle = block.register_forward_pre_hook(lambda _, args: recorded.append(args[0].clone()))
    try:
        with torch.no_grad():
            model(**inputs)
            with tc.prune(model, method, prompt=prompt):
                model(**inputs)
    finally:
        handle.remove()
    (view,), states = method.views, recorded[0]
    assert (view.layer_idx, view.num_layers) == (layer, len(family_of(model).layers(model)))
    with_image = list_positions(visual.any(1))  # samples without images are not part of a view
    assert len(view.mask) == len(with_image)
    for index, row in enumerate(with_image):
        behind = real[row] & ~visual[row] & (visual[row].cumsum(0) > 0)
        for kind, expected in (("prompt", prompt[row] & real[row]), ("text", behind)):
            positions = getattr(view, f"{kind}_positions")[index]
            mask, values = getattr(view, f"{kind}_mask")[index], getattr(view, kind)[index]
            assert positions[mask].tolist() == list_positions(expected)
            assert (positions[~mask] == -1).all()
            torch.testing.assert_close(values[mask], states[row][expected])
        mask = view.mask[index]
        assert view.positions[index][mask].tolist() == list_positions(visual[row])
        torch.testing.assert_close(view.hidden_states[index][mask], states[row][visual[row]])
        assert view.last[index] == list_positions(real[row])[-1]
        assert view.total[index] == visual[row].sum()
        assert view.others[index] == (real[row] & ~visual[row]).sum()
