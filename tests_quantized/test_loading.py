"""`tc.load` with quantization, and models whose weights are stored quantized."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
from torch import nn

import tokencover as tc
from tests_quantized.models import RECIPES, list_quantized_layers
from tokencover.evaluation.answering import load_model
from tokencover.loading import find_quantization, load
from tokencover_models.pebble import PICTURE_CHECKPOINT

LAYERS = {"4bit": bitsandbytes.nn.Linear4bit, "8bit": bitsandbytes.nn.Linear8bitLt}


def list_linear(model: nn.Module) -> list[str]:
    return [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and name != "lm_head"
    ]


@pytest.mark.parametrize("quantization", ["4bit", "8bit"])
@pytest.mark.parametrize("name", ["pebble", "pebble-clips"])
@pytest.mark.parametrize("device", [None, "cpu"])
def test_bundled_models_are_quantized(name: str, quantization: str, device: str | None) -> None:
    plain, _ = load(name)
    model, _ = load(name, quantization=quantization, device=device)
    assert list_quantized_layers(model) == list_linear(plain)
    layers = [part for part in model.modules() if isinstance(part, LAYERS[quantization])]
    assert len(layers) == len(list_linear(plain))
    assert find_quantization(model) == quantization
    assert find_quantization(plain) is None
    assert model.device == torch.device("cpu")


def test_four_bits_are_nf4_with_double_quantization_in_the_models_dtype() -> None:
    for dtype in ("float32", "bfloat16"):
        model, _ = load("pebble", quantization="4bit", dtype=dtype)
        config = model.config.quantization_config
        assert config.bnb_4bit_quant_type == "nf4"
        assert config.bnb_4bit_use_double_quant
        assert config.bnb_4bit_compute_dtype == getattr(torch, dtype) == model.dtype


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Pebble, stored in 8 bits."""
    model, _ = load("pebble", quantization="8bit")
    folder = tmp_path / "stored"
    model.save_pretrained(folder)
    for path in PICTURE_CHECKPOINT.glob("*.json"):
        if path.name not in ("config.json", "generation_config.json"):
            shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize("device", [None, "cpu", "auto"])
def test_a_checkpoint_stored_quantized_is_loaded_and_not_moved(
    stored: Path, device: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("moved")

    monkeypatch.setattr("transformers.PreTrainedModel.to", fail)
    model, _ = load(str(stored), device=device)
    assert find_quantization(model) == "8bit"
    assert len(list_quantized_layers(model)) == len(list_linear(model))


def test_a_checkpoint_stored_quantized_is_not_quantized_again(stored: Path) -> None:
    with pytest.raises(tc.InputError, match="is already quantized: omit quantization"):
        load(str(stored), quantization="4bit")


def test_other_quantization_configs_pass_through() -> None:
    model, _ = load("pebble", quantization_config=RECIPES["torchao-int8"].configure())
    assert find_quantization(model) == "torchao"
    assert len(list_quantized_layers(model)) == len(list_linear(model))
    with pytest.raises(tc.InputError, match="Pass one of them"):
        load("pebble", quantization="4bit", quantization_config=object())


@pytest.mark.parametrize("recipe", RECIPES)
def test_runs_describe_the_weights_before_and_after_a_pass(recipe: str) -> None:
    """Bitsandbytes packs 4-bit weights again when they are first used on some CPUs."""
    from tokencover.evaluation.answering import VisionLanguageModel, describe_run

    model, processor = load("pebble", quantization_config=RECIPES[recipe].configure())
    asked = VisionLanguageModel("pebble", model, processor)
    before = describe_run(asked)
    with torch.no_grad():
        model(input_ids=torch.arange(20, 40)[None])
    assert describe_run(asked) == before
    assert before["model"]["quantization"] in ("4bit", "8bit", "torchao", "quanto")
    assert asked.title == f"pebble ({before['model']['quantization']})"
    assert before["model"]["weights"] != describe_run(load_model("pebble"))["model"]["weights"]
