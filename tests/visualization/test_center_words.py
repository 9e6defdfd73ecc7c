"""The words that chose prompt centers, as people write them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tokencover as tc
from tests.pruning.tokenizers_for_words import every_kind, tokenizer_for
from tests.visualization.traces import make_trace
from tokencover.pruning import Trace
from tokencover.visualization import count_words, words_of_centers

TEXT = "How many giraffes stand before 42 umbrellas, old or new?"


def chosen_at(*places: int) -> Trace:
    """A trace whose prompt centers were chosen by the words at these places."""
    columns = max(1, len(places))
    centers = [(0, 0, 0, column) for column in range(len(places))]
    return make_trace(
        {(0, 0): (1, columns)}, centers, center_prompt_positions=torch.tensor(places).long()
    )


@every_kind
def test_word_of_several_tokens_returned_whole(kind: str) -> None:
    tokenizer = tokenizer_for("qwen", kind)
    coded = tokenizer(TEXT, return_offsets_mapping=True, add_special_tokens=False)
    ids, offsets = coded["input_ids"], coded["offset_mapping"]
    spaces = {"\u2581", "\u0120", " "}  # as the kinds of tokenizer write a space
    places = [
        place
        for place, piece in enumerate(tokenizer.convert_ids_to_tokens(ids))
        if piece not in spaces
    ]
    whole = [
        next(
            m[0]
            for m in re.finditer(r"\w+|[^\w\s]", TEXT)
            if m.start() < offsets[place][1] <= m.end()
        )
        for place in places
    ]
    assert len(set(whole)) < len(places)  # some words are cut
    found = words_of_centers(chosen_at(*places), torch.tensor([ids]), tokenizer)
    assert found == whole
    processor = SimpleNamespace(tokenizer=tokenizer)
    assert words_of_centers(chosen_at(*places), torch.tensor([ids]), processor) == whole


def test_token_without_text_named_space() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    (newline,) = tokenizer("\n", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([[newline, tokenizer.eos_token_id]])
    assert words_of_centers(chosen_at(0, 1), ids, tokenizer) == ["(space)", "(space)"]


def test_scripts_without_spaces_split_by_token() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    ids = tokenizer("图片里有什么", add_special_tokens=False)["input_ids"]
    found = words_of_centers(chosen_at(0), torch.tensor([ids]), tokenizer)
    assert found == ["图"]


def test_each_sample_reads_its_own_row() -> None:
    tokenizer = tokenizer_for("qwen", "bytes")
    rows = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("red", "bus")]
    ids = torch.tensor([[row[0]] for row in rows])
    trace = chosen_at(0)
    trace.sample = 1
    alone: Any = tokenizer.decode(ids[1])
    assert words_of_centers(trace, ids, tokenizer) == [alone.strip()]


def test_method_without_center_words_gives_none() -> None:
    trace = make_trace({(0, 0): (2, 2)}, [(0, 0, 0, 0)])
    assert words_of_centers(trace, torch.tensor([[5, 6]]), tokenizer_for("qwen", "bytes")) == []


def test_center_word_counts_sorted_descending() -> None:
    assert count_words(["a", "red", "bus", "red"]) == [("red", 2), ("a", 1), ("bus", 1)]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, 2, 3]]), "position 4 is outside of input_ids, which have 3 tokens"),
        (torch.tensor([1, 2, 3, 4, 5]), r"shape \(5,\) have no row 0"),
        (torch.empty(0, 5), r"shape \(0, 5\) have no row 0"),
    ],
)
def test_ids_of_other_prompt_raise(ids: torch.Tensor, message: str) -> None:
    with pytest.raises(tc.InputError, match=message):
        words_of_centers(chosen_at(4), ids, tokenizer_for("qwen", "bytes"))
