"""Texts in a tree get what each of them gets alone."""

from __future__ import annotations

from typing import Any

import torch

from research.boulder_training.question_trees import Text, grow_tree, read_trees
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.model import PICTURE_WORD_IDS

PLACES = 576


def make_text(words: str) -> Text:
    tokens = tuple(PICTURE_WORD_IDS[word] for word in words.split())
    return Text("exist", tokens, len(tokens) - 1, len(tokens) - 1)


TEXTS = [
    make_text(words)
    for words in (
        "is there a red star ? yes",
        "is there a red heart ? no",
        "is there a blue star ? no",
        "what number is on the red star ? 7",
    )
]


def test_beginnings_are_shared() -> None:
    tree = grow_tree(TEXTS)
    assert len(tree.tokens) == 6 + 2 + 3 + 8
    judged = [[tree.targets[spot] for spot in spots] for spots in tree.judged]
    assert judged == [[text.tokens[-1]] for text in TEXTS]


def test_all_words_of_an_answer_are_judged() -> None:
    word = PICTURE_WORD_IDS
    long = Text("where", (word["where"], word["?"], word["top"], word["left"]), 2, 2)
    phrase = Text("phrase", (word["the"], word["red"], word["star"]), 1, 2)
    tree = grow_tree([long, phrase, TEXTS[0]])
    judged = [[tree.targets[spot] for spot in spots] for spots in tree.judged]
    assert judged == [[word["top"], word["left"]], [word["star"]], [word["yes"]]]
    assert [tree.kinds[spots.start] for spots in tree.judged] == ["where", "phrase", "exist"]


def test_a_text_in_a_tree_is_read_as_it_is_alone() -> None:
    model, _ = load_pebble()
    torch.manual_seed(0)
    visual = torch.randn(2, 5, model.config.text_config.hidden_size)
    positions = torch.tensor([[3, 40, 41, 90, 500], [0, 1, 2, 3, 575]])
    trees = [grow_tree(TEXTS), grow_tree(TEXTS[:2])]
    with torch.inference_mode():
        logits = read_trees(model, visual, positions, PLACES, trees)
        alone = [
            _read_alone(model, visual[[picture]], positions[[picture]], text)
            for picture, texts in enumerate((TEXTS, TEXTS[:2]))
            for text in texts
        ]
    torch.testing.assert_close(logits, torch.stack(alone), rtol=0, atol=1e-4)


def _read_alone(
    model: Any, visual: torch.Tensor, positions: torch.Tensor, text: Text
) -> torch.Tensor:
    """Logits before the answer, from the stock decoder and its own mask."""
    decoder = model.model.language_model
    begin = decoder.embed_tokens(torch.tensor([[model.config.text_config.bos_token_id]]))
    words = decoder.embed_tokens(torch.tensor([text.tokens[:-1]]))
    numbers = [torch.tensor([[0]]), 1 + positions, 1 + PLACES + torch.arange(words.shape[1])[None]]
    states = decoder(
        inputs_embeds=torch.cat([begin, visual, words], dim=1),
        position_ids=torch.cat(numbers, dim=1),
    ).last_hidden_state
    logits: torch.Tensor = model.lm_head(states[0, -1])
    return logits
