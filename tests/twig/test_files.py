"""Twigs on disk: what was written is read, what is damaged is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pruning.test_matrix import ALL, built
from tests.twig.shaken_twigs import grow_shaken
from tests.zoo.entry import ZooEntry
from tokencover import InputError
from tokencover.twig import grow, load_twig, save_twig

ENTRIES: list[Any] = [case.values[0] for case in ALL]
ATTENDING = [
    pytest.param(entry, id=entry.name)
    for entry in ENTRIES
    if not entry.recurrent and not entry.own_masks
]


@pytest.mark.parametrize("entry", ATTENDING)
def test_a_twig_comes_back_as_it_was(entry: ZooEntry, tmp_path: Path) -> None:
    twig = grow_shaken(built(entry.name), 2, 2)
    save_twig(twig, tmp_path / "deep" / "folder")
    found = load_twig(tmp_path / "deep" / "folder")
    assert found.plan == twig.plan
    assert not found.training
    assert not any(parameter.requires_grad for parameter in found.parameters())
    saved = twig.state_dict()
    assert found.state_dict().keys() == saved.keys()
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, saved[name])
    assert [type(block) for block in found.blocks] == [type(block) for block in twig.blocks]


def test_a_model_that_does_not_tell_its_blocks_is_refused() -> None:
    with pytest.raises(InputError, match="Llama4ForCausalLM, has no layers"):
        grow(built("llama4"), 1, 1)


def test_a_plan_does_not_tell_where_the_model_was_read_from() -> None:
    model: Any = built("llava")
    config = model.get_decoder().config
    config._name_or_path = "a/private/folder"
    try:
        assert "private" not in repr(grow(model, 1, 1).plan)
    finally:
        config._name_or_path = ""


def test_an_untrained_twig_has_the_weights_of_the_next_blocks_but_not_their_tensors() -> None:
    model: Any = built("llava")
    twig = grow(model, 1, 3)
    for number, block in enumerate(twig.blocks):
        base = model.model.language_model.layers[1 + number]
        for name, tensor in base.state_dict().items():
            mine = block.state_dict()[name]
            assert torch.equal(mine, tensor)
            assert mine.data_ptr() != tensor.data_ptr()
    assert torch.equal(twig.head.weight, model.lm_head.weight)
    assert twig.head.weight.data_ptr() != model.lm_head.weight.data_ptr()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_twig(grow_shaken(built("llava"), 1, 2), tmp_path)
    return tmp_path


def change_plan(folder: Path, **changes: Any) -> None:
    plan = json.loads((folder / "twig.json").read_text())
    (folder / "twig.json").write_text(json.dumps({**plan, **changes}))


def test_a_folder_without_a_twig_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere has no twig\.json and no twig\.safetensors"):
        load_twig(tmp_path / "nowhere")


def test_half_a_twig_is_refused(folder: Path) -> None:
    (folder / "twig.safetensors").unlink()
    with pytest.raises(InputError, match=r"has no twig\.safetensors. Pass the folder"):
        load_twig(folder)


def test_cut_weights_are_refused(folder: Path) -> None:
    path = folder / "twig.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"twig\.safetensors is damaged"):
        load_twig(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"after": 1}', '"twig"', "null"])
def test_a_damaged_plan_is_refused(folder: Path, text: str) -> None:
    (folder / "twig.json").write_text(text)
    with pytest.raises(InputError, match=r"twig\.json does not describe a twig"):
        load_twig(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"after": "1"}, "not integers"),
        ({"depth": 3}, "3 layers of width 32: blocks.2"),
        ({"vocabulary": 7}, r"head.weight has shape \(\d+, 32\), expected \(7, 32\)"),
        ({"head_bias": True}, "head.bias has shape none"),
        ({"after": 4}, "does not fit a decoder of 5"),
        ({"depth": 0}, "does not fit a decoder of 5"),
        ({"config": {}}, "does not describe a twig"),
        ({"decoder": "os.system"}, "'os.system' is not a text model"),
        ({"decoder": "transformers.models.llama.modeling_llama.Nobody"}, "is not a text model"),
        ({"decoder": "transformers.models.none.modeling_none.Model"}, "is not a text model"),
        ({"decoder": "transformers.models.llama.modeling_llama.LlamaMLP"}, "is not a text model"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    change_plan(folder, **changes)
    with pytest.raises(InputError, match=message):
        load_twig(folder)


def test_another_width_is_refused(folder: Path) -> None:
    config = json.loads((folder / "twig.json").read_text())["config"]
    change_plan(folder, config={**config, "hidden_size": 16})
    with pytest.raises(InputError, match="layers of width 16"):
        load_twig(folder)


@pytest.mark.parametrize(("after", "depth"), [(-1, 2), (2, 0), (4, 2)])
def test_a_twig_must_fit_its_base(after: int, depth: int) -> None:
    with pytest.raises(InputError, match="does not fit a decoder of 5"):
        grow(built("llava"), after, depth)


def test_blocks_that_attend_differently_are_refused() -> None:
    model: Any = built("llava_onevision")
    config = model.get_decoder().config
    before = config.layer_types
    config.layer_types = ["full_attention"] * 2 + ["sliding_attention"] * 3
    try:
        with pytest.raises(InputError, match="different attention types"):
            grow(model, 1, 2)
    finally:
        config.layer_types = before
