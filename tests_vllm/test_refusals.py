"""What cannot go together with pruning is reported before a model is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests_vllm.tiny_models import make_qwen2
from tokencover.serving import get_served_model
from tokencover.serving.starting import read_architectures
from tokencover_models.pebble import PICTURE_CHECKPOINT


def make_config(folder: Path, settings: Any, **options: Any) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    served = get_served_model(read_architectures(str(folder)))
    overrides = {"architectures": [served.name], "tokencover": settings}
    arguments = EngineArgs(
        str(folder), dtype="float32", max_model_len=512, hf_overrides=overrides, **options
    )
    return arguments.create_engine_config()


def test_a_plain_start_is_taken() -> None:
    config = make_config(PICTURE_CHECKPOINT, {"budget": 64})
    assert config.model_config.uses_mrope
    assert "mrope_section" not in config.model_config.hf_text_config.rope_parameters
    assert not make_config(
        PICTURE_CHECKPOINT, {"budget": 64, "positions": "reindex"}
    ).model_config.uses_mrope


def test_the_tower_is_planned_for_whole_pictures() -> None:
    from vllm.multimodal import MULTIMODAL_REGISTRY

    config = make_config(PICTURE_CHECKPOINT, {"budget": 64}).model_config
    info = MULTIMODAL_REGISTRY.create_processor(config).info
    assert info.get_mm_max_tokens_per_item(512, {"image": 1}) == {"image": 576}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"enable_mm_embeds": True}, "embeddings"),
        ({"mm_processor_kwargs": {"tokencover": {"budget": 9}}}, "is for requests"),
        ({"language_model_only": True}, "without its vision encoder"),
        ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}}, "speculative"),
        ({"enable_lora": True, "enable_tower_connector_lora": True}, "LoRA"),
        ({"compilation_config": {"cudagraph_mm_encoder": True}}, "CUDA graphs of the encoder"),
        (
            {"ec_transfer_config": {"ec_connector": "ECExampleConnector", "ec_role": "ec_both"}},
            "disaggregated encoder",
        ),
    ],
)
def test_what_is_refused(options: Any, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        make_config(PICTURE_CHECKPOINT, {"budget": 64}, **options)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (None, "must contain"),
        ({"budget": 0}, "at least 1"),
        ({"budget": 8, "method": "fastv"}, "decoder"),
    ],
)
def test_wrong_settings(settings: Any, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        make_config(PICTURE_CHECKPOINT, settings)


def test_rows_and_columns_are_not_numbered_anew(tmp_path: Path) -> None:
    make_qwen2(tmp_path)
    with pytest.raises(Exception, match="does not support positions='reindex'"):
        make_config(tmp_path, {"budget": 16, "positions": "reindex"})


def test_an_installed_plugin_changes_nothing() -> None:
    from vllm import ModelRegistry
    from vllm.plugins import load_general_plugins

    load_general_plugins()
    before = {name: str(each) for name, each in ModelRegistry.models.items()}
    known = [name for name in before if name.startswith("TokenCover")]
    assert len(known) == 5
    from tokencover.serving.plugin import register

    register()
    assert {name: str(each) for name, each in ModelRegistry.models.items()} == before
    assert "tokencover" not in before["LlavaForConditionalGeneration"]
