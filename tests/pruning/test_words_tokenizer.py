"""The tokenizer that belongs to a model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, Qwen2VLConfig

from tests.pruning.tokenizers_for_words import (
    LLAVA,
    QWEN,
    bare,
    tokenizer_for,
)
from tokencover.errors import InputError
from tokencover.pruning.prompt import load_tokenizer


def model_named(name: object) -> Any:
    return SimpleNamespace(config=SimpleNamespace(_name_or_path=""), name_or_path=str(name))


def never_asked(*_: str) -> bool:
    pytest.fail("the hub was asked")


def test_tokenizer_of_a_model(tmp_path: Path) -> None:
    saved = tokenizer_for("qwen", "bytes")
    saved.save_pretrained(tmp_path)
    loaded = load_tokenizer(SimpleNamespace(config=SimpleNamespace(_name_or_path=str(tmp_path))))
    assert loaded.get_vocab() == saved.get_vocab()
    assert loaded.chat_template == QWEN


def test_tokenizer_of_a_model_whose_processor_has_the_template(tmp_path: Path) -> None:
    bare().save_pretrained(tmp_path)
    assert load_tokenizer(model_named(tmp_path)).chat_template is None
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": LLAVA}))
    assert load_tokenizer(model_named(tmp_path)).chat_template == LLAVA


def test_tokenizer_of_an_unknown_model_says_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no name.*processor= to tc\.prune, or prompt= as a mask"):
        load_tokenizer(torch.nn.Linear(1, 1))
    with pytest.raises(InputError, match=r"none.*cannot be loaded.*processor= to tc\.prune"):
        load_tokenizer(model_named(tmp_path / "none"))


def test_folder_without_a_tokenizer_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of such a folder transformers makes a Qwen tokenizer that knows no words."""
    monkeypatch.setattr("huggingface_hub.file_exists", never_asked)
    Qwen2VLConfig().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"cannot be loaded.*processor= to tc\.prune"):
        load_tokenizer(model_named(tmp_path))


@pytest.mark.parametrize("answer", [True, False, OSError("unreachable")])
def test_hub_is_asked_once_before_it_is_loaded_from(
    answer: bool | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    tried: list[bool] = []

    def file_exists(name: str, _: str) -> bool:
        asked.append(name)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def from_pretrained(_: str, *, local_files_only: bool) -> Any:
        tried.append(local_files_only)
        if local_files_only:
            raise OSError("not in the cache")
        return tokenizer_for("qwen", "bytes")

    monkeypatch.setattr("huggingface_hub.file_exists", file_exists)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", from_pretrained)
    if answer is True:
        assert load_tokenizer(model_named("owner/qwen")) is tokenizer_for("qwen", "bytes")
    else:
        with pytest.raises(InputError, match=r"'owner/qwen'.*cannot be loaded"):
            load_tokenizer(model_named("owner/qwen"))
    assert asked == ["owner/qwen"]
    assert tried == ([True, False] if answer is True else [True])
