"""A language model of boulder's kind, small enough for tests, in a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<empty_output>"]
MERGES = ["r e", "Ġ re", "Ġre d"]
WORDS = [*SPECIAL, *sorted(ByteLevel.alphabet()), "re", "Ġre", "Ġred"]
QUANTISED = gguf.GGMLQuantizationType.Q8_0
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def make_base() -> Any:
    """Random weights, three heads that share one of keys."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=96,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5},
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    return LlamaForCausalLM(config).eval()


def write_base(
    model: Any, path: Path, architecture: str = "llama", interleaved: bool = True
) -> Path:
    """Write a model as llama.cpp does: matrices in eight bits, rotary halves side by side."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    for name, tensor in model.model.state_dict().items():
        if tensor.dim() == 1:
            writer.add_tensor(_name(name), tensor.numpy())
        else:
            rows = _interleave(name, tensor, config) if interleaved else tensor
            packed = gguf.quants.quantize(rows.numpy(), QUANTISED)
            writer.add_tensor(_name(name), packed, raw_dtype=QUANTISED)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in ("embed_tokens", "norm"):
        return {"embed_tokens": "token_embd", "norm": "output_norm"}[stem] + ".weight"
    _, block, part = stem.split(".", 2)
    return f"blk.{block}.{PARTS[part]}.weight"


def _interleave(name: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """Row 2 i and 2 i + 1 of a head are what rotary positions turn together."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for part, count in heads.items():
        if part in name:
            size = weight.shape[0] // count
            order = [
                head * size + half * size // 2 + pair
                for head in range(count)
                for pair in range(size // 2)
                for half in (0, 1)
            ]
            return weight[order]
    return weight
