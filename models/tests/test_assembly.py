"""Boulder's parts together are the stock model with the low-rank changes added by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_base import make_base, write_base
from torch import Tensor
from transformers import LlavaForConditionalGeneration

import tokencover as tc
from tokencover_models.boulder.model import DECODER, DOWN, UP, read_base_model
from tokencover_models.pebble.data import make_examples
from tokencover_models.pebble.model import CheckpointError, make_picture_model

CHANGED = f"{DECODER}layers.1.self_attn.v_proj"
Learned = dict[str, Tensor]


@pytest.fixture(scope="module")
def base_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(make_base(), tmp_path_factory.mktemp("base") / "small.gguf")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random: a vision encoder of pebble's shape, a projector, one low-rank change."""
    torch.manual_seed(2)
    tower: Any = make_picture_model(blocks=1).model.vision_tower
    learned = {f"model.vision_tower.{name}": each for name, each in tower.state_dict().items()}
    for layer, shape in {"linear_1": (96, 128), "linear_2": (96, 96)}.items():
        learned[f"model.multi_modal_projector.{layer}.weight"] = torch.randn(shape) / 10
        learned[f"model.multi_modal_projector.{layer}.bias"] = torch.randn(96)
    learned |= {CHANGED + DOWN: torch.randn(4, 96), CHANGED + UP: torch.randn(32, 4)}
    path = tmp_path_factory.mktemp("learned") / "boulder.safetensors"
    save_file({name: each.half().contiguous() for name, each in learned.items()}, path)
    return path


def test_it_is_the_stock_model_with_the_changes_added(base_file: Path, checkpoint: Path) -> None:
    model, processor = tc.load_boulder(checkpoint, base_file)
    assert type(model) is LlavaForConditionalGeneration
    assert not model.training
    learned = load_file(checkpoint)
    named = model.state_dict()
    for name, tensor in read_base_model(base_file).weights.items():
        whole = DECODER + name
        if whole == f"{CHANGED}.weight":
            change = learned[CHANGED + UP].float() @ learned[CHANGED + DOWN].float()
            assert torch.equal(named[whole], tensor + change)
        else:
            assert torch.equal(named[whole], tensor), name
    for name, tensor in learned.items():
        if not name.startswith(DECODER):
            assert torch.equal(named[name], tensor.float()), name
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.config.image_token_id == processor.image_token_id


def test_it_answers_and_is_pruned_and_kept_whole_alike(base_file: Path, checkpoint: Path) -> None:
    model, processor = tc.load_boulder(checkpoint, base_file)
    first, second = list(make_examples("validation", 1))[:2]
    prompts = [([each.picture], each.question) for each in (first, second)]
    inputs = tc.make_inputs(processor, prompts)
    with torch.inference_mode():
        plain = model(**inputs).logits[:, -1]
        with tc.prune(model, tc.MoB(576), processor=processor):
            torch.testing.assert_close(model(**inputs).logits[:, -1], plain, rtol=0, atol=1e-5)
        with tc.prune(model, tc.MoB(64), processor=processor) as run:
            model.generate(**inputs, max_new_tokens=3)
        assert [len(each.kept) for each in run.trace] == [64, 64]
        assert torch.equal(model(**inputs).logits[:, -1], plain)


def test_what_was_saved_loads_by_its_folder(
    base_file: Path, checkpoint: Path, tmp_path: Path
) -> None:
    model, processor = tc.load_boulder(checkpoint, base_file)
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    again, its_processor = tc.load(str(tmp_path))
    example = next(iter(make_examples("validation", 1)))
    prompts = [([example.picture], example.question)]
    one, other = tc.make_inputs(processor, prompts), tc.make_inputs(its_processor, prompts)
    assert torch.equal(one["input_ids"], other["input_ids"])
    with torch.inference_mode():
        assert torch.equal(model(**one).logits, again(**other).logits)


def _lose_up(learned: Learned) -> None:
    del learned[CHANGED + UP]


def _lose_down(learned: Learned) -> None:
    del learned[CHANGED + DOWN]


def _widen(learned: Learned) -> None:
    learned[CHANGED + DOWN] = torch.zeros(4, 97).half()


def _rename(learned: Learned) -> None:
    for half in (DOWN, UP):
        learned[CHANGED.replace("layers.1", "layers.9") + half] = learned.pop(CHANGED + half)


def _lose_projector(learned: Learned) -> None:
    del learned["model.multi_modal_projector.linear_1.bias"]


@pytest.mark.parametrize("spoil", [_lose_up, _lose_down, _widen, _rename, _lose_projector])
def test_a_checkpoint_that_does_not_fit_is_refused(
    base_file: Path, checkpoint: Path, tmp_path: Path, spoil: Callable[[Learned], None]
) -> None:
    learned = load_file(checkpoint)
    spoil(learned)
    save_file(learned, tmp_path / "spoiled.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks its other half|matrix 32 x 96|do not fit"):
        tc.load_boulder(tmp_path / "spoiled.safetensors", base_file)


def test_a_damaged_checkpoint_is_refused(base_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.safetensors"
    path.write_bytes(b"no tensors")
    with pytest.raises(CheckpointError, match="missing or damaged"):
        tc.load_boulder(path, base_file)
