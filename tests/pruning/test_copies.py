"""Copies of a pruned model, and parts that two models share."""

from __future__ import annotations

import copy
import io
import pickle
from abc import ABC

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

import tokencover as tc
from tests.methods.replay import logits_of
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_prune import fingerprint
from tests.zoo import ZOO

ENTRY = ZOO["llava"]


def test_a_copy_made_inside_is_refused() -> None:
    model = ENTRY.build()
    with tc.prune(model, KeepRandom(3)):
        for part in (model, model.model, model.model.language_model.layers[0]):
            with pytest.raises(tc.InputError, match="copy"):
                copy.deepcopy(part)
            with pytest.raises(tc.InputError, match="copy"):
                pickle.dumps(part)
        with pytest.raises(tc.InputError, match="copy"):
            torch.save(model, io.BytesIO())
    inputs = ENTRY.inputs("single")
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model)(**inputs).logits, model(**inputs).logits)


def test_weights_can_be_saved_inside(tmp_path: object) -> None:
    model = ENTRY.build()
    with tc.prune(model, KeepRandom(3)):
        model.save_pretrained(str(tmp_path))
    again = type(model).from_pretrained(str(tmp_path))
    inputs = ENTRY.inputs("single")
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("shared", ["vision_tower", "language_model"])
def test_a_part_that_two_models_share_is_pruned_once(shared: str) -> None:
    first, second = ENTRY.build(), ENTRY.build()
    setattr(second.model, shared, getattr(first.model, shared))
    inputs = ENTRY.inputs("single")
    words = ENTRY.user_words(inputs)
    with torch.no_grad():
        second(**inputs)
    before = fingerprint(second)
    with tc.prune(first, KeepRandom(3), prompt=words):
        if shared == "language_model":
            with pytest.raises(tc.InputError, match="share"):
                tc.prune(second, KeepRandom(4), prompt=words)
        else:
            with tc.prune(second, KeepRandom(4), prompt=words) as run, torch.no_grad():
                second(**inputs)
            assert len(run.trace[0].kept) == 4
    assert fingerprint(second) == before
    with tc.prune(second, KeepRandom(4), prompt=words) as run, torch.no_grad():
        second(**inputs)
    assert len(run.trace[0].kept) == 4


def test_an_unpruned_model_that_shares_blocks_stays_unpruned() -> None:
    first, second = ENTRY.build(), ENTRY.build()
    second.model.language_model = first.model.language_model
    inputs = ENTRY.inputs("single")
    words = ENTRY.user_words(inputs)
    with torch.no_grad():
        plain = second(**inputs).logits
        with tc.prune(first, KeepRandom(3), prompt=words):
            assert torch.equal(second(**inputs).logits, plain)
            first(**inputs)
            assert torch.equal(second(**inputs).logits, plain)


def test_an_unpruned_model_that_shares_the_encoder_sees_it_unmerged() -> None:
    first, second = ENTRY.build(), ENTRY.build()
    second.model.vision_tower = first.model.vision_tower
    inputs = ENTRY.inputs("single")
    with torch.no_grad():
        expected = second(**inputs).logits
        with tc.prune(first, tc.ToMe(9)):
            first(**inputs)
            assert torch.equal(second(**inputs).logits, expected)
            found = first.model.vision_tower(inputs["pixel_values"]).last_hidden_state
        alone = first.model.vision_tower(inputs["pixel_values"]).last_hidden_state
    assert torch.equal(found, alone)  # no images of the model


def kinds(model: PreTrainedModel) -> list[type]:
    return [type(module) for module in model.modules()]


def test_classes_are_as_before() -> None:
    model = ENTRY.build()
    before = kinds(model)
    with tc.prune(model, KeepRandom(3)):
        assert isinstance(model, type(ENTRY.build()))
    assert kinds(model) == before


def test_what_transformers_does_for_a_new_class_is_not_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It reads the annotations of all classes above, which takes longer than the rest."""
    made: list[type] = []
    model = ENTRY.build()
    monkeypatch.setattr(PreTrainedModel, "__init_subclass__", classmethod(made.append))
    with tc.prune(model, KeepRandom(3)):
        assert type(model) is not type(ENTRY.build())
    assert made == []


class _Named(ABC):  # noqa: B024 - as the layers of optimum-quanto begin
    """A base class that is not a module and comes first: it decides the layout of objects."""


class _NamedLinear(_Named, nn.Linear):
    """A projection as quantization libraries make them."""


def test_projection_with_a_foreign_first_base_is_hooked() -> None:
    model = ENTRY.build()
    inputs = ENTRY.inputs("ragged")
    words = ENTRY.user_words(inputs)
    method = tc.FastV(3)
    expected, expected_traces = logits_of(model, method, inputs, words)
    for name, part in list(model.named_modules()):
        if type(part) is nn.Linear:
            same = _NamedLinear(part.in_features, part.out_features, part.bias is not None)
            same.load_state_dict(part.state_dict())
            model.set_submodule(name, same)
    before = fingerprint(model)
    found, traces = logits_of(model, method, inputs, words)
    assert [each.kept.tolist() for each in traces] == [
        each.kept.tolist() for each in expected_traces
    ]
    assert torch.equal(found, expected)
    assert fingerprint(model) == before
    assert not [each for each in model.modules() if type(each) is nn.Linear]
