"""The list of families: ours, in order, and those that other packages add."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import tokencover as tc
from tests.pruning.random_method import KeepRandom
from tests.zoo import ZOO
from tokencover.errors import InputError
from tokencover.families import FAMILIES, UnsupportedModelError, family_of, list_claims

HEAVY = ("transformers", "PIL", "scipy")


@pytest.mark.parametrize("room", ["tokencover.pruning", "tokencover.families"])
def test_the_room_is_entered_without_transformers(room: str) -> None:
    code = f"import sys, {room}; print([each for each in {HEAVY} if each in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


LISTED = (
    "LLaVA-1.5", "LLaVA-Next", "Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL", "Qwen3.5", "MiniCPM-V",
    "LFM2-VL", "LFM3-VL", "Qwen2.5-Omni", "Qwen3-Omni", "Video-LLaVA", "LLaVA-OneVision",
    "InternVL", "SmolVLM", "Idefics3",
    "Mistral 3", "LightOnOCR", "GLM-4V", "DeepSeek-VL", "DeepSeek-VL hybrid", "Janus",
    "GOT-OCR 2", "Ovis2", "FastVLM", "PerceptionLM", "VideoLLaMA 3", "HyperCLOVA X Vision 2",
    "Granite 4 Vision", "Granite Docling", "Aria", "Idefics2", "Gemma 3", "Gemma 4",
    "Cohere Vision", "Llama 4", "PaliGemma", "Molmo 2", "EXAONE 4.5", "Step 3.7",
    "Cohere Compass", "Cosmos 3 Edge", "DeepSeek-OCR 2", "ERNIE 4.5 VL", "Gemma 4 Unified",
    "HunYuan VL", "Kimi K2.5", "Muse", "PaddleOCR-VL",
)  # fmt: skip


def test_our_families_are_listed_in_the_order_that_users_know() -> None:
    assert tuple(family.name for family in FAMILIES) == LISTED


@pytest.fixture
def _as_before() -> Iterator[None]:
    """Forget the families that a test registers."""
    known = dict(FAMILIES._found)
    yield
    FAMILIES._found = known


@pytest.mark.usefixtures("_as_before")
def test_a_family_of_another_package_is_known_by_name_and_by_model() -> None:
    theirs = replace(FAMILIES["llava-1.5"], name="Theirs", model_types=("theirs",))
    model = ZOO["llava"].build(layers=2)
    vars(model.config)["model_type"] = "theirs"
    with pytest.raises(UnsupportedModelError, match="no family knows this model type"):
        family_of(model)
    assert FAMILIES.register(theirs) is theirs
    assert FAMILIES["theirs"] is family_of(model) is theirs
    assert [family.name for family in FAMILIES] == [*LISTED, "Theirs"]
    assert list_claims(tc.FasterVLM)[-1].family is theirs
    with pytest.raises(InputError, match="another model family named 'theirs'"):
        FAMILIES.register(replace(theirs, model_types=("other",)))


def test_what_is_no_family_is_refused() -> None:
    with pytest.raises(InputError, match=r"must be a Family\(\.\.\.\), got 'llava'"):
        FAMILIES.register("llava")  # type: ignore[arg-type]


@pytest.mark.usefixtures("_as_before")
def test_a_family_of_another_package_is_pruned() -> None:
    entry = ZOO["llava"]
    model, inputs = entry.build(), entry.inputs("single", "left")
    method, words = KeepRandom(4, (1,)), entry.user_words(inputs)
    with torch.no_grad():
        with tc.prune(model, method, prompt=words):
            expected = model(**inputs).logits
        vars(model.config)["model_type"] = "theirs"
        FAMILIES.register(replace(FAMILIES["LLaVA-1.5"], name="Theirs", model_types=("theirs",)))
        with tc.prune(model, method, prompt=words) as run:
            assert torch.equal(model(**inputs).logits, expected)
    assert "Theirs" in repr(run)
