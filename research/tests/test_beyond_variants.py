"""What `research/beyond/run.py` tries: prompt centres of other kinds, against loops."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from research.beyond.variants import Signal, Variant
from tests.methods.views import hand_made
from tokencover import MoBStages, View

SIZES, TAILS, BEFORE = [12, 7], [3, 2], 2


def draw() -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """States, words and maps of a block."""
    generator = torch.Generator().manual_seed(3)
    states = [torch.randn(size, 5, generator=generator) for size in SIZES]
    words = [torch.randn(tail, 5, generator=generator) for tail in TAILS]
    lengths = [BEFORE + size + tail for size, tail in zip(SIZES, TAILS, strict=True)]
    maps = [torch.rand(2, each, each, generator=generator).tril() for each in lengths]
    return states, words, maps


def see(block: int) -> View:
    states, words, maps = draw()
    return hand_made(
        states,
        before=BEFORE,
        behind=TAILS,
        words=words,
        attention={2: maps},
        block=block,
        depth=4,
    )


def score(states: Tensor, words: Tensor, weighed: bool) -> list[float]:
    """The best cosine of each token with a word, or the one that stands out most."""
    best = [float("-inf")] * len(states)
    for word in words:
        row = torch.tensor([torch.cosine_similarity(word, token, dim=0) for token in states])
        if weighed:
            row = (row - row.mean()) / row.std(correction=0)
        best = [max(old, new) for old, new in zip(best, row.tolist(), strict=True)]
    return best


@pytest.mark.parametrize("signal", ["words", "weighed"])
def test_prompt_centers_are_near_to_words(signal: Signal) -> None:
    states, words, _ = draw()
    view = see(0)
    choice = Variant(4, (0,), asked=0.5, first=signal).choose(view)
    for sample, tokens in enumerate(states):
        scores = score(tokens, words[sample], signal == "weighed")
        best = sorted(range(len(tokens)), key=lambda token: -scores[token])[:2]
        assert choice.details[sample]["prompt_centers"].tolist() == best
        assert len(choice.kept[sample]) == 4


@pytest.mark.parametrize("mass", [0.1, 0.5, 0.9])
def test_as_many_prompt_centers_as_have_a_share_of_the_attention(mass: float) -> None:
    *_, maps = draw()
    view = see(2)
    choice = Variant(5, (0, 2), mass=mass).choose(view)
    for sample, size in enumerate(SIZES):
        row = maps[sample][:, -1, BEFORE : BEFORE + size].mean(0)
        best, had = 0, 0.0
        while had < mass * float(row.sum()):
            had += float(row.sort(descending=True).values[best])
            best += 1
        assert len(choice.details[sample]["prompt_centers"]) == min(5, best)


def test_by_default_it_is_mob_in_stages() -> None:
    for block in (0, 2):
        view = see(block)
        mine, theirs = (kind(2, (0, 2)).choose(view).kept for kind in (Variant, MoBStages))
        assert [each.tolist() for each in mine] == [each.tolist() for each in theirs]
    assert list(Variant(2, (0, 2), later="words").watched_layers(4)) == []
    assert list(Variant(2, (0, 2), first="attention").watched_layers(4)) == [0, 2]
