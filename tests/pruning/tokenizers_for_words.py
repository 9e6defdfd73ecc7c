"""Small tokenizers of the real kinds, with the chat templates of the families people use.

No tokenizer can be downloaded, so they are built here. Beside them stand the prompts that a
family's processor would make.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel
from tokenizers.trainers import BpeTrainer, UnigramTrainer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tokencover.pruning.prompt import PromptLocator

every_kind = pytest.mark.parametrize("kind", ["bytes", "llama", "unigram"])
QUESTION = "What is shown in this image?"
SENTENCES = (
    "USER: What is shown in this image? ASSISTANT: A red bus stands before the old station.",
    "system\nYou are a helpful assistant.\nuser\nHow many dogs are there?\nassistant\nThree dogs.",
    "[INST] Describe the picture in two sentences. [/INST] There is a cat on the red sofa.",
    "User: Which colour is the bus? Assistant: The bus is red. Frame1: <0.5 seconds>",
)

FAST: Any = PreTrainedTokenizerFast  # its constructor is not typed

# --------------------------------------------------------------------------- templates
PARTS = (
    "{%% for part in message['content'] %%}"
    "{%% if part['type'] == 'text' %%}{{ part['text'] }}"
    "{%% elif part['type'] == 'image' %%}%s"
    "{%% elif part['type'] == 'video' %%}%s"
    "{%% endif %%}{%% endfor %%}"
)
IMAGES_FIRST = (
    "{% for part in message['content'] if part['type'] == 'image' %}<image>\n{% endfor %}"
    "{% for part in message['content'] if part['type'] == 'text' %}{{ part['text'] }}{% endfor %}"
)
LLAVA = (
    "{% for message in messages %}"
    "{% if message['role'] != 'system' %}{{ message['role'].upper() + ': ' }}{% endif %}"
    + IMAGES_FIRST
    + "{{ ' ' }}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
LLAVA_NEXT = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}"
    "{{ '<<SYS>>\n' + message['content'][0]['text'] + '\n<</SYS>>\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' }}" + IMAGES_FIRST + "{{ ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'][0]['text'] + '</s> ' }}{% endif %}{% endfor %}"
)
LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}"
    "{% set lead = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
    "{% set messages = messages[1:] %}{% else %}{% set lead = '' %}{% endif %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '<s>[INST] ' + (lead if loop.first else '') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + ' </s>' }}{% endif %}{% endfor %}"
)
CHATML = (
    "{%% for message in messages %%}"
    "{%% if loop.first and message['role'] != 'system' %%}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{%% endif %%}"
    "<|im_start|>{{ message['role'] }}\n"
    "{%% if message['content'] is string %%}{{ message['content'] }}{%% else %%}"
    + PARTS
    + "{%% endif %%}<|im_end|>\n{%% endfor %%}"
    "{%% if add_generation_prompt %%}<|im_start|>assistant\n{%% endif %%}"
)
QWEN_VIDEO = "<|vision_start|><|video_pad|><|vision_end|>"
QWEN = CHATML % (
    "{% if add_vision_id %}Picture {{ loop.index }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>",
    QWEN_VIDEO,
)
INTERNVL = CHATML % ("<IMG_CONTEXT>{{ '\n' }}", "<video>{{ '\n' }}")
SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}:{% else %}{{ ': ' }}{% endif %}"
    + PARTS % ("<image>", "<video>")
    + "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
KIMI = CHATML % (
    "<|media_start|>image<|media_content|><|image_pad|><|media_end|>",
    "Video 1: <|video_pad|> that was it ",
)


@dataclass(frozen=True)
class Shape:
    """A family's template, its special tokens, and how its processor spells one image."""

    template: str
    special: tuple[str, ...]
    image: str
    spelled: str | None = None

    def expand(self, text: str) -> str:
        return text.replace(self.image, self.spelled or self.image * 3)


_QWEN_TOKENS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
SHAPES = {
    "llava": Shape(LLAVA, ("<image>",), "<image>"),
    "llava-next": Shape(LLAVA_NEXT, ("<image>",), "<image>"),
    "qwen": Shape(QWEN, (*_QWEN_TOKENS, "<|image_pad|>", "<|video_pad|>"), "<|image_pad|>"),
    "smolvlm": Shape(
        SMOLVLM,
        ("<|im_start|>", "<end_of_utterance>", "<image>", "<fake>", "<row_1_col_1>", "<global>"),
        "<image>",
        "<fake><row_1_col_1><image><image>\n\n<fake><global><image><image><fake>",
    ),
    "internvl": Shape(
        INTERNVL,
        ("<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"),
        "<IMG_CONTEXT>",
        "<img><IMG_CONTEXT><IMG_CONTEXT></img>",
    ),
}
OTHER_SHAPES = {
    "llama2": Shape(LLAMA2, ("<image>",), "<image>"),
    "kimi": Shape(
        KIMI,
        (
            *_QWEN_TOKENS,
            *("<|media_start|>", "<|media_content|>", "<|media_end|>"),
            *("<|image_pad|>", "<|video_pad|>"),
        ),
        "<|image_pad|>",
    ),
}


# --------------------------------------------------------------------------- tokenizers
def byte_level() -> Tokenizer:
    """Byte-level BPE with words cut as Qwen cuts them: newlines merge with their neighbours."""
    core = Tokenizer(BPE())
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=450, initial_alphabet=alphabet, show_progress=False)
    core.train_from_iterator(SENTENCES, trainer)
    return core


BYTES = [f"<0x{value:02X}>" for value in range(256)]


def llama() -> Tokenizer:
    """BPE over text with "▁" for spaces, one at the start, and bytes for unknown characters."""
    core = Tokenizer(BPE())
    core.normalizer = normalizers.Replace(" ", "▁")
    core.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    flat = [sentence.replace("\n", " ") for sentence in SENTENCES]  # a newline is a byte there
    core.train_from_iterator(flat, BpeTrainer(vocab_size=260, show_progress=False))
    model = json.loads(core.to_str())["model"]
    tokens = ["<unk>", *BYTES, *sorted(model["vocab"], key=model["vocab"].__getitem__)]
    core = Tokenizer(
        BPE(
            vocab={token: rank for rank, token in enumerate(tokens)},
            merges=[tuple(pair) for pair in model["merges"]],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    core.decoder = sentencepiece_decoder()
    return core


def unigram() -> Tokenizer:
    """Unigram with Metaspace, as newer SentencePiece tokenizers are converted."""
    core = Tokenizer(Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = UnigramTrainer(
        vocab_size=150, show_progress=False, special_tokens=["<unk>"], unk_token="<unk>"
    )
    core.train_from_iterator(SENTENCES, trainer)
    scores = [(token, score) for token, score in json.loads(core.to_str())["model"]["vocab"]]
    core = Tokenizer(Unigram([*scores, *((name, -20.0) for name in BYTES)], 0, byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    core.decoder = sentencepiece_decoder()
    return core


def sentencepiece_decoder() -> Any:
    return decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )


def word_level() -> Tokenizer:
    """Whole words, without any trace of whitespace."""
    cut = pre_tokenizers.Whitespace()
    pieces = dict.fromkeys(
        piece for sentence in SENTENCES for piece, _ in cut.pre_tokenize_str(sentence)
    )
    core = Tokenizer(
        WordLevel({word: at for at, word in enumerate(["<unk>", *pieces])}, unk_token="<unk>")
    )
    core.pre_tokenizer = cut
    return core


KINDS = {"bytes": byte_level, "llama": llama, "unigram": unigram, "words": word_level}


@cache
def core_text(kind: str) -> str:
    return str(KINDS[kind]().to_str())


@cache
def tokenizer_for(family: str, kind: str) -> Any:
    shape = {**SHAPES, **OTHER_SHAPES}[family]
    core = Tokenizer.from_str(core_text(kind))
    special = ("<s>", "</s>", "<pad>", *shape.special)
    core.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    wrapped = FAST(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token=None if kind == "bytes" else "<unk>",
        extra_special_tokens=list(shape.special),
    )
    wrapped.chat_template = shape.template
    return wrapped


@cache
def words_for(family: str, kind: str, turns: Any = "last") -> PromptLocator:
    return PromptLocator(tokenizer_for(family, kind), turns=turns)


def bare() -> Any:
    """A tokenizer without a chat template."""
    return FAST(
        tokenizer_object=Tokenizer.from_str(core_text("bytes")),
        bos_token="<s>",
        pad_token="<pad>",
        extra_special_tokens=["<image>"],
    )


# --------------------------------------------------------------------------- prompts
IMAGE = {"type": "image"}


def said(role: str, *parts: Any) -> dict[str, Any]:
    """A message; a string is a text part."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"role": role, "content": content}


def encode(family: str, kind: str, *chats: Any, side: str = "left", waits: bool = True) -> Any:
    """The ids that the family's processor would give for the chats, and the visual positions."""
    tokenizer, shape = tokenizer_for(family, kind), {**SHAPES, **OTHER_SHAPES}[family]
    texts = [
        tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=waits)
        for chat in chats
    ]
    return pad(tokenizer, [shape.expand(text) for text in texts], shape.image, side)


def pad(tokenizer: Any, texts: Sequence[str], image: str, side: str) -> tuple[Tensor, Tensor]:
    start = [tokenizer.bos_token_id]
    rows = [start + tokenizer.encode(text, add_special_tokens=False) for text in texts]
    width = max(len(row) for row in rows)
    fill = [[tokenizer.pad_token_id] * (width - len(row)) for row in rows]
    pairs = zip(rows, fill, strict=True)
    ids = torch.tensor([f + row if side == "left" else row + f for row, f in pairs])
    return ids, ids == tokenizer.convert_tokens_to_ids(image)


def decoded(tokenizer: Any, ids: Tensor, mask: Tensor) -> list[str]:
    assert mask.dtype == torch.bool
    assert mask.shape == ids.shape
    rows = zip(ids, mask, strict=True)
    return [tokenizer.decode(row[kept].tolist()).strip() for row, kept in rows]


def found(family: str, kind: str, *chats: Any, turns: str = "last", **how: Any) -> list[str]:
    ids, visual = encode(family, kind, *chats, **how)
    mask = words_for(family, kind, turns).mask(ids, visual)
    return decoded(tokenizer_for(family, kind), ids, mask)
