"""A LLaVA with random weights, for load tests, and what small models of its kind are made of.

Heads are at least 32 wide, which is the least that vLLM's attention on a CPU takes. The tokenizer
knows bytes, so it can read any text.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

LLAVA_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].upper() }}: "
    "{% if message['content'] is string %}{{ message['content'] }} {% else %}"
    "{% for part in message['content'] if part['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }} "
    "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
CLIP_TOWER = {
    "model_type": "clip_vision_model",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 4,
    "projection_dim": 64,
}


def make_tokenizer(special: tuple[str, ...], template: str) -> Any:
    """Bytes, and some special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    added = ["<|endoftext|>", *special]
    inner.add_special_tokens([AddedToken(each, special=True) for each in added])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        chat_template=template,
        additional_special_tokens=list(special),
    )


def describe_text(kind: str, vocabulary: int, **more: Any) -> dict[str, Any]:
    """Settings of a decoder with two blocks."""
    return {
        "model_type": kind,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 2048,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        **more,
    }


def make_wide_llava(folder: Path) -> None:
    """A LLaVA-1.5 of 27 million parameters and 576 visual tokens, for load tests."""
    tokenizer = make_tokenizer(("<image>",), LLAVA_TEMPLATE)
    tower = {**CLIP_TOWER, "image_size": 192, "patch_size": 8, "hidden_size": 128}
    config = LlavaConfig(
        text_config={
            **describe_text("llama", len(tokenizer)),
            "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
            "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64,
        },
        vision_config=tower,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )  # fmt: skip
    processor = LlavaProcessor(
        image_processor=CLIPImageProcessor(
            size={"shortest_edge": 192}, crop_size={"height": 192, "width": 192}
        ),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="default",
        chat_template=LLAVA_TEMPLATE,
        num_additional_image_tokens=1,
    )
    save(folder, LlavaForConditionalGeneration(config), processor)


def save(folder: Path, model: Any, processor: Any) -> None:
    """Draw weights, large enough that answers depend on every part, and write all files."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, 1.2 / weight[0].numel() ** 0.5, generator=generator)
            elif "norm" not in name and "ln_" not in name:
                weight.normal_(0.0, 0.1, generator=generator)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def copy_with_known_names(source: Path, folder: Path) -> None:
    """Copy a LLaVA with the names of weights that vLLM's own class knows.

    Newer checkpoints leave out a level in the names of the CLIP vision encoder; our class reads
    both.
    """
    tower, level = "vision_tower.", "vision_model."
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    weights = {}
    for file in sorted(source.glob("*.safetensors")):
        for name, tensor in load_file(file).items():
            before, found, after = name.partition(tower)
            known = not found or after.startswith(level)
            weights[name if known else f"{before}{tower}{level}{after}"] = tensor
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
