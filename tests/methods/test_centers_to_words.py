"""The word of each prompt center, against a slow search."""

from __future__ import annotations

import torch
from torch.nn.functional import cosine_similarity

import tokencover as tc
from tests.methods.views import hand_made
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tokencover.methods import Method, NearestOnly


def test_center_word_has_largest_cosine() -> None:
    generator = torch.Generator().manual_seed(5)
    states = [torch.randn(size, 8, generator=generator) for size in (30, 17)]
    words = [torch.randn(size, 8, generator=generator) for size in (4, 7)]
    view = hand_made(states, words=words, behind=[4, 7])
    methods: list[Method] = [tc.MoB(12, split=tc.Split(6, 6, 3)), NearestOnly(12)]
    for method in methods:
        for sample, said in enumerate(method.choose(view).details):
            centers, places = (
                said["prompt_centers"].tolist(),
                said["center_prompt_positions"].tolist(),
            )
            assert len(centers) == len(places) > 1
            best = []
            for center, place in zip(centers, places, strict=True):
                cosines = [
                    float(cosine_similarity(states[sample][center], word, dim=0))
                    for word in words[sample]
                ]
                first = view.prompt_positions[sample, 0]
                assert place == first + cosines.index(max(cosines))
                best.append(max(cosines))
            assert best == sorted(best, reverse=True)  # centers are ranked by this cosine


def test_ties_go_to_the_first_word() -> None:
    word = torch.tensor([[1.0, 0.0]])
    view = hand_made([torch.eye(2)], words=[word.repeat(3, 1)], before=5)
    (said,) = tc.MoB(1, split=tc.Split(1, 0, 1)).choose(view).details
    assert said["center_prompt_positions"].tolist() == [7]


def test_empty_prompt_gives_no_positions() -> None:
    view = hand_made([torch.randn(5, 3)])
    silent = hand_made([torch.randn(5, 3)], prompt_mask=torch.zeros_like(view.prompt_mask))
    (said,) = tc.MoB(3).choose(silent).details
    assert said["center_prompt_positions"].tolist() == []


def test_trace_positions_refer_to_padded_sequence() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("ragged")
    words = entry.user_words(inputs)
    with torch.no_grad(), tc.prune(model, tc.MoB(budget=8), prompt=words) as run:
        model(**inputs)
    for trace in run.trace:
        assert len(trace.center_prompt_positions) == len(trace.prompt_centers) > 0
        assert words[trace.sample, trace.center_prompt_positions].all()
