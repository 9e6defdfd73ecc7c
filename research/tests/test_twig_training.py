"""Training a twig on tiny models: it learns, the base does not change, it can be resumed."""

from __future__ import annotations

import copy
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from research.twig.training import TrainingSettings, compute_twig_loss, train
from tests.pruning.test_matrix import built
from tests.twig.shaken_twigs import grow_shaken, make_batch
from tests.zoo import ZOO
from tokencover import InputError
from tokencover.twig import Twig

SETTINGS = TrainingSettings(steps=12, after=1, depth=2, rate=3e-3)


def are_equal(first: Twig, second: Twig) -> bool:
    other = second.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in first.state_dict().items())


@pytest.mark.parametrize("name", ["llava", "qwen2_vl"])
def test_it_learns_and_leaves_the_base_alone(name: str) -> None:
    model: Any = copy.deepcopy(built(name))
    model.train()
    model.get_decoder().layers[3].eval()
    frozen = next(model.parameters()).requires_grad_(False)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    wants = [parameter.requires_grad for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    losses: list[float] = []
    batch = make_batch(ZOO[name])
    twig = train(model, repeat(batch), SETTINGS, report=lambda _, loss: losses.append(loss))
    assert losses[-1] < 0.5 * losses[0]
    assert float(compute_twig_loss(model.eval(), twig, batch)) < losses[-2]
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[key])
    model.train()
    model.get_decoder().layers[3].eval()
    assert [parameter.requires_grad for parameter in model.parameters()] == wants
    assert all(parameter.grad is None for parameter in model.parameters())
    assert [module.training for module in model.modules()] == modes
    assert not frozen.requires_grad
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(parameter.requires_grad for parameter in twig.parameters())


def test_the_modes_of_the_base_come_back() -> None:
    model: Any = copy.deepcopy(built("llava")).train()
    model.get_decoder().layers[3].eval()
    modes = [module.training for module in model.modules()]
    train(model, repeat(make_batch(ZOO["llava"])), TrainingSettings(1, after=1, depth=1))
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("name", ["llava", "llava_next", "qwen2_5_vl", "internvl"])
def test_the_loss_is_that_of_the_truncated_network(name: str) -> None:
    """The base with its blocks after the twig taken away, and the twig's parts in place."""
    entry, model = ZOO[name], copy.deepcopy(built(name))
    twig = grow_shaken(model, 1, 2)
    short: Any = copy.deepcopy(model)
    decoder = short.get_decoder()
    decoder.layers = torch.nn.ModuleList([decoder.layers[0], *copy.deepcopy(list(twig.blocks))])
    decoder.config.num_hidden_layers = 3
    decoder.norm.load_state_dict(twig.norm.state_dict())
    short.set_output_embeddings(copy.deepcopy(twig.head))
    batch = make_batch(entry)
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    with torch.no_grad():
        logits = short(**inputs, use_cache=False).logits
        expected = cross_entropy(logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
        found = compute_twig_loss(model, twig, batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_a_resumed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    model, entry = built("llava"), ZOO["llava"]
    batches = [make_batch(entry), make_batch(entry, "single"), make_batch(entry, "two_images")] * 4
    whole = train(model, batches, SETTINGS)
    path = tmp_path / "new" / "state.pt"
    steps: list[int] = []
    for end in (5, 9, None):
        part = train(
            model,
            batches,
            SETTINGS,
            checkpoint=path,
            save_every=2,
            stop_after=end,
            report=lambda step, _: steps.append(step),
        )
        assert are_equal(part, whole) == (end is None)
    assert steps == list(range(12))
    assert are_equal(train(model, [], SETTINGS, checkpoint=path), whole)  # it was finished


def test_a_state_of_another_training_is_refused(tmp_path: Path) -> None:
    model, batches = built("llava"), [make_batch(ZOO["llava"])]
    path = tmp_path / "state.pt"
    train(model, batches, TrainingSettings(1, after=1, depth=1), checkpoint=path)
    with pytest.raises(InputError, match=r"was begun with .*depth=1"):
        train(model, batches, TrainingSettings(1, after=1, depth=2), checkpoint=path)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match="delete it to begin"):
        train(model, batches, TrainingSettings(1, after=1, depth=1), checkpoint=path)


def test_a_model_in_bfloat16_trains_in_float32_and_gets_a_twig_of_its_type() -> None:
    entry = ZOO["llava"]
    model = entry.build(dtype=torch.bfloat16)
    batch = make_batch(entry)
    batch["pixel_values"] = batch["pixel_values"].bfloat16()
    losses: list[float] = []
    twig = train(model, repeat(batch), SETTINGS, report=lambda _, loss: losses.append(loss))
    assert losses[-1] < 0.6 * losses[0]
    assert {parameter.dtype for parameter in twig.parameters()} == {torch.bfloat16}


def test_the_rate_rises_and_falls() -> None:
    settings = TrainingSettings(100, warm_up=0.03, rate=1.0)
    rates = [settings.compute_rate(step) for step in range(100)]
    assert rates[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates[3] == 1.0
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[3 + 48] == pytest.approx(0.5, abs=0.02)
    assert 0 < rates[-1] < 1e-3
    assert TrainingSettings(5, warm_up=0.0, rate=1.0).compute_rate(0) == 1.0


def test_what_cannot_be_trained_on_is_refused() -> None:
    model, batch = built("llava"), make_batch(ZOO["llava"])
    settings = TrainingSettings(2, after=1, depth=1)
    with pytest.raises(InputError, match="there were 1 batches for 2 steps"):
        train(model, [batch], settings)
    silent = {**batch, "labels": torch.full_like(batch["labels"], -100)}
    with pytest.raises(InputError, match="all -100"):
        train(model, [silent], settings)
    with pytest.raises(InputError, match="give each token a label"):
        train(model, [{**batch, "labels": batch["labels"][:, 1:]}], settings)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"rate": 0.0}, {"warm_up": 1.0}])
def test_settings_that_train_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="train nothing"):
        TrainingSettings(**{"steps": 1, **wrong})
