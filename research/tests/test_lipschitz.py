"""Change of the answer per distance of the tokens, on tiny models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import directed_hausdorff
from torch import Tensor

import tokencover as tc
from research.theory.lipschitz import LipschitzEstimate, Move, estimate_lipschitz
from tests.pruning.random_method import KeepRandom
from tests.pruning.test_matrix import built
from tests.zoo import ZOO
from tests.zoo.entry import Inputs, Side, ZooEntry
from tokencover.methods.base import Choice, Method, View
from tokencover.pruning.prune import prune

WITH_ODD_TOKENS = ["llava", "llava_next", "qwen2_vl", "video_llava"]
"""Among them newline tokens, class tokens and dynamic resolution."""


def estimate(
    entry: ZooEntry, inputs: Inputs, method: Method | None = None, **options: Any
) -> LipschitzEstimate:
    method = tc.MoB(budget=5) if method is None else method
    words = entry.user_words(inputs)
    return estimate_lipschitz(built(entry.name), inputs, method, prompt=words, **options)


def slow_hausdorff(first: Tensor, second: Tensor) -> float:
    pair = [np.asarray(torch.nn.functional.normalize(each.double())) for each in (first, second)]
    return float(max(directed_hausdorff(*pair)[0], directed_hausdorff(*pair[::-1])[0]))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", WITH_ODD_TOKENS)
def test_what_pruning_moved_equals_the_slow_way(name: str, side: Side) -> None:
    """Distances from the model's own hidden states, changes from its own logits."""
    entry, model = ZOO[name], built(name)
    kind = "ragged" if "ragged" in entry.kinds else "video"
    inputs = entry.inputs(kind, side)
    visual, words = entry.visual(inputs), entry.user_words(inputs)
    found = estimate(entry, inputs, subsets=1, nudges=0).pruned
    with torch.no_grad():
        whole: Any = model(**inputs, output_hidden_states=True, use_cache=False)
        with prune(model, tc.MoB(budget=5), prompt=words) as run:
            pruned: Any = model(**inputs, use_cache=False)
    assert len(found) == len(run.trace) == len(visual)
    for row, move in enumerate(found):
        states = whole.hidden_states[1][row]  # after one block
        tokens, prompt = states[visual[row]], states[words[row]]
        kept = tokens[run.trace[row].kept]
        expected = slow_hausdorff(torch.cat([tokens, prompt]), torch.cat([kept, prompt]))
        assert move.distance == pytest.approx(expected, abs=1e-5)
        last = int(inputs["attention_mask"][row].nonzero().max())
        change = (whole.logits[row, last] - pruned.logits[row, last]).norm()
        assert move.change == pytest.approx(float(change), rel=1e-4, abs=1e-5)
        assert move.ratio == move.change / move.distance


def test_the_constant_is_the_largest_ratio_tried() -> None:
    found = LipschitzEstimate(
        tried=(Move(0.5, 1.0), Move(0.1, 0.3), Move(0.0, 9.0)), pruned=(Move(0.2, 0.7),)
    )
    assert found.constant == pytest.approx(3.0)  # nothing can be said without a distance
    assert list(found.expected) == pytest.approx([0.6])
    assert "C >= 3" in str(found)


def test_nudges_are_small_and_subsets_are_not() -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("single")
    near = estimate(entry, inputs, subsets=0, nudges=4, size=0.01)
    far = estimate(entry, inputs, subsets=4, nudges=0)
    assert len(near.tried) == len(far.tried) == 4
    assert all(0.005 < move.distance < 0.03 for move in near.tried)
    assert all(move.change > 0 for move in near.tried)
    assert max(move.distance for move in far.tried) > 0.3
    smaller = estimate(entry, inputs, subsets=0, nudges=4, size=0.001)
    # Nearly linear at this scale: ten times nearer, about ten times less change.
    for small, large in zip(smaller.tried, near.tried, strict=True):
        assert small.change == pytest.approx(large.change / 10, rel=0.2)


def test_it_repeats_itself_and_leaves_the_model_alone() -> None:
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("ragged")
    with torch.no_grad():
        before = model(**inputs).logits
        first = estimate(entry, inputs, subsets=2, nudges=2)
        assert estimate(entry, inputs, subsets=2, nudges=2) == first
        assert estimate(entry, inputs, subsets=2, nudges=2, seed=1).tried != first.tried
        assert torch.equal(model(**inputs).logits, before)
    assert len(first.tried) == 4 * len(first.pruned)


def test_keeping_everything_moves_nothing() -> None:
    entry = ZOO["llava"]
    found = estimate(entry, entry.inputs("single"), tc.MoB(budget=1.0), subsets=1, nudges=0)
    assert found.pruned == (Move(0.0, 0.0),)
    assert found.pruned[0].ratio == 0.0


@dataclass(frozen=True)
class Twins(Method):
    """Make the second visual token a copy of the first, and keep both or one of them."""

    both: bool

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return (1,)

    merges = True

    def choose(self, view: View) -> Choice:
        states = view.hidden_states.clone()
        states[:, 1] = states[:, 0]
        kept = torch.arange(int(view.mask.sum()))
        return Choice([kept if self.both else kept[kept != 1]], states)


def test_no_constant_is_large_enough() -> None:
    """One of two identical tokens is dropped: the same set, another answer."""
    entry, model = ZOO["llava"], built("llava")
    inputs = entry.inputs("single")
    answers = []
    for both in (True, False):
        with torch.no_grad(), prune(model, Twins(both), prompt=entry.user_words(inputs)):
            answers.append(model(**inputs, use_cache=False).logits[0, -1])
    assert float((answers[0] - answers[1]).norm()) > 1e-3


def test_what_it_cannot_measure_is_refused() -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("single")
    with pytest.raises(tc.InputError, match="acts before 2 decoder layers"):
        estimate(entry, inputs, KeepRandom(7, (1, 3)))
    with pytest.raises(tc.InputError, match="changes states"):
        estimate(entry, inputs, KeepRandom(7, merges=True))
    with pytest.raises(tc.InputError, match="both 0"):
        estimate(entry, inputs, subsets=0, nudges=0)
    with pytest.raises(tc.InputError, match="visual token"):
        estimate(entry, entry.inputs("text_only"))
