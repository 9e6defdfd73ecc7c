"""A text of the caller's, found in the rows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tests.pruning.tokenizers_for_words import (
    QUESTION,
    decoded,
    encode,
    every_kind,
    pad,
    said,
    tokenizer_for,
)
from tokencover.errors import InputError
from tokencover.pruning.prompt import mark_text


@every_kind
@pytest.mark.parametrize("text", ["red bus", " red bus", "这是 🦊", "é\n\nred", "a red bus, 这是"])
def test_text_mask_finds_the_last_occurrence(kind: str, text: str) -> None:
    tokenizer = tokenizer_for("llava", kind)
    prompt = f"Is {text}, or{text} or <image> <image>\n{text}? Yes."
    ids, _ = pad(tokenizer, [prompt, "x " * 9 + prompt], "<image>", "right")
    mask = mark_text(tokenizer, ids, text)
    assert [words.rstrip("?") for words in decoded(tokenizer, ids, mask)] == [text.strip()] * 2
    images = ids == tokenizer.convert_tokens_to_ids("<image>")
    last = images.cumsum(1).argmax(1)
    assert (mask.int().argmax(1) > last).all()


def test_text_mask_prefers_whole_words() -> None:
    tokenizer = tokenizer_for("llava", "bytes")
    ids, _ = pad(tokenizer, ["a cat on concatenated", "concatenated"], "<image>", "left")
    mask = mark_text(SimpleNamespace(tokenizer=tokenizer), ids, ["cat", "concat"])
    assert decoded(tokenizer, ids, mask)[0] == "cat"
    assert mask[1].any()


def test_text_mask_takes_one_text_for_each_row() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    ids, _ = encode("qwen", "bytes", [said("user", "How many?")], [said("user", QUESTION)])
    mask = mark_text(tokenizer, ids, ["many", "shown in"])
    assert decoded(tokenizer, ids, mask) == ["many", "shown in"]


def test_text_mask_knows_rows_repeated_for_beam_search() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    ids, _ = encode("qwen", "bytes", [said("user", "How many?")], [said("user", QUESTION)])
    texts = ["many", "shown in"]
    once = mark_text(tokenizer, ids, texts)
    beams = mark_text(tokenizer, ids.repeat_interleave(3, dim=0), texts)
    assert torch.equal(beams, once.repeat_interleave(3, dim=0))
    with pytest.raises(InputError, match="'many' is not in row 1"):
        mark_text(tokenizer, ids.repeat(2, 1), texts)


def test_text_mask_names_text_and_row() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    ids, _ = encode("qwen", "bytes", [said("user", "How many?")], [said("user", QUESTION)])
    with pytest.raises(InputError, match=r"'many' is not in row 1.*exactly as it was"):
        mark_text(tokenizer, ids, "many")
    with pytest.raises(InputError, match="3 texts for 2 rows"):
        mark_text(tokenizer, ids, ["How"] * 3)
    with pytest.raises(InputError, match="0 texts for 2 rows"):
        mark_text(tokenizer, ids, [])
    with pytest.raises(InputError, match=r"' <\|im_end\|>' for row 0 has no words"):
        mark_text(tokenizer, ids, " <|im_end|>")
