"""Models by name: what is missing is said, with the way out."""

from __future__ import annotations

import json
import shutil
import tomllib
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import transformers

from tests.test_package import run
from tests.zoo.qwen2_vl import build
from tokencover.bundled_models import MODELS
from tokencover.errors import InputError, MissingPackageError
from tokencover.loading import PACKAGE_USES, QUANTIZED_PACKAGES, load
from tokencover_models.pebble import PICTURE_CHECKPOINT

ROOT = Path(__file__).parent.parent


@pytest.fixture
def qwen(tmp_path: Path) -> Path:
    """A folder as the hub has it for Qwen2-VL, with a tiny model and pebble's tokenizer."""
    folder = tmp_path / "qwen"
    build().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(PICTURE_CHECKPOINT / name, folder)
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 2,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


def test_processor_without_torchvision_names_extra(qwen: Path) -> None:
    assert find_spec("torchvision") is None, "this test is about an environment without it"
    with pytest.raises(MissingPackageError) as told:
        load(str(qwen))
    assert str(told.value) == (
        f"the model {str(qwen)!r} cannot be loaded: its processor needs torchvision, which is not "
        "installed. Run: pip install 'tokencover[vision] @ git+https://github.com/tokencover/tokencover'"
    )


def test_the_processor_is_tried_before_the_weights(qwen: Path) -> None:
    """A package that lacks is reported before gigabytes are read."""
    (qwen / "model.safetensors").write_bytes(b"")
    with pytest.raises(MissingPackageError, match="torchvision"):
        load(str(qwen))


def test_missing_bitsandbytes_names_the_extra() -> None:
    assert find_spec("bitsandbytes") is None, "this test is about an environment without it"
    with pytest.raises(MissingPackageError) as told:
        load("pebble", quantization="4bit")
    assert str(told.value) == (
        "quantization='4bit' needs bitsandbytes, which is not installed: `pip install "
        "'tokencover[quantized] @ git+https://github.com/tokencover/tokencover'`, or leave "
        "quantization out."
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.split(">")[0] for line in project["optional-dependencies"]["quantized"]}
    assert set(QUANTIZED_PACKAGES) == named


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("pebble", {"quantization": "3bit"}, "quantization must be '4bit' or '8bit', got '3bit'"),
        ("boulder", {"quantization": "4bit"}, "boulder cannot be quantized"),
        ("boulder", {"revision": "main"}, "boulder does not take revision"),
        ("pebble", {"nonsense": 1}, "does not take the option 'nonsense'. Omit it"),
        ("pebble", {"attn_implementation": "nonsense"}, "cannot be loaded: .*nonsense"),
    ],
)
def test_wrong_options_are_input_errors(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(name, **options)


def test_options_of_from_pretrained_pass_through() -> None:
    model, _ = load("pebble", attn_implementation="eager", output_attentions=True)
    assert model.config._attn_implementation == "eager"
    assert model.config.output_attentions
    assert load("pebble")[0].config._attn_implementation == "sdpa"


def test_hub_options_reach_configuration_processor_and_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    for name in ("AutoConfig", "AutoProcessor", "AutoModelForImageTextToText"):
        original = getattr(transformers, name).from_pretrained

        def record(source: Any, name: str = name, original: Any = original, **options: Any) -> Any:
            seen.append((name, options.pop("revision", None)))
            return original(source, **options)

        monkeypatch.setattr(f"transformers.{name}.from_pretrained", record)
    load("pebble", revision="abc")
    assert {each for each in seen if each[1] is not None} == {
        ("AutoConfig", "abc"),
        ("AutoProcessor", "abc"),
        ("AutoModelForImageTextToText", "abc"),
    }


def test_extra_contains_named_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.split(">")[0] for line in project["optional-dependencies"]["vision"]}
    assert {name for name, (_, extra) in PACKAGE_USES.items() if extra == "vision"} == named


BLOCKED = """
import sys
from importlib.abc import MetaPathFinder

class Blocks(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in {allowed} or root in sys.stdlib_module_names or root.startswith("_"):
            return None
        raise ModuleNotFoundError(f"{{name}} is not there", name=name)

sys.meta_path.insert(0, Blocks())
"""
CORE = """
import torch
import tokencover as tc
import tokencover.budget, tokencover.covering, tokencover.methods
from tokencover.methods import Choice

torch.manual_seed(0)
visual, prompt = torch.randn(50, 8), torch.randn(5, 8)
cover = tc.mob(visual, prompt, budget=10, prompt_budget=5, fold=2)
assert len(cover.indices) == 10
assert tc.paper_split(64, total=576).prompt_budget == 32
assert len(list(tc.METHODS)) > 20
assert tc.from_json(tc.to_json(tc.get_method("fastv", budget=64))) == tc.FastV(64)
print("ok")
"""


def test_the_core_needs_torch_alone() -> None:
    """So that a serving engine with another transformers can use geometry, budgets, methods."""
    needed = {"tokencover", "torch", "torchgen", "functorch"}
    pending = ["torch"]
    while pending:
        for line in requires(pending.pop()) or []:
            name = line.split(";")[0].split(">")[0].split("=")[0].split("<")[0].split("[")[0]
            name = name.strip().replace("-", "_").lower()
            if "extra ==" not in line and name not in needed and find_spec(name) is not None:
                needed.add(name)
                pending.append(name)
    assert "transformers" not in needed
    code = BLOCKED.format(allowed=sorted(needed)) + CORE
    assert run(code).strip() == "ok"
    with pytest.raises(AssertionError, match="transformers is not there"):
        run(BLOCKED.format(allowed=sorted(needed)) + "import transformers")


@pytest.mark.parametrize("name", ["pebble", "pebble-clips", "boulder"])
def test_bundled_model_without_package_names_command(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODELS, "_found", {})
    monkeypatch.setattr(MODELS, "_is_complete", True)
    with pytest.raises(MissingPackageError, match=r"pip install 'tokencover-models @ git\+https"):
        load(name)
