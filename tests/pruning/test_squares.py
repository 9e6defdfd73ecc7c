"""Merging squares of patches in vision encoders with a spatial merge, against the same by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tokencover as tc
from tests.pruning.merging_method import MergePairs
from tests.pruning.test_matrix import built
from tests.pruning.test_prune import fingerprint
from tests.zoo import ZOO
from tests.zoo.oracle import blocked_forward
from tokencover.methods import Method
from tokencover.pruning.vision.merged_row import CropSet, Squares, build_row

NAMES = ("internvl", "qianfan_ocr")
SIDE = 2
PLACES = [(a, b) for a in range(SIDE) for b in range(SIDE)]
SQUARES = 9
"""Of a crop."""
Square = list[Tensor]


def attend(block: Any, states: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """States after attention to each token as to so many, and the keys by head."""
    attention, normed = block.attention, block.layernorm_before(states[None])
    queries = attention.q_norm(attention.q_proj(normed))
    keys = attention.k_norm(attention.k_proj(normed))
    values = attention.v_proj(normed)
    queries, keys, values = (
        each[0].unflatten(-1, (attention.num_heads, -1)).transpose(0, 1)
        for each in (queries, keys, values)
    )
    products = queries @ keys.transpose(-1, -2) * attention.scale + sizes.log()
    mixed = (products.softmax(-1) @ values).transpose(0, 1).flatten(1)
    return states + block.lambda_1 * attention.projection_layer(mixed), keys


def feed(block: Any, states: Tensor) -> Tensor:
    fed: Tensor = block.lambda_2 * block.mlp(block.layernorm_after(states[None]))[0]
    return states + fed


class SlowCrop:
    """One crop: its class token, and its squares as lists of patches with those they stand for."""

    def __init__(self, states: Tensor) -> None:
        self.width = int((len(states) - 1) ** 0.5)
        self.first = states[:1]
        self.rest = states[1:].view(self.width, self.width, -1)
        across = range(self.width // SIDE)
        corners = [(row * SIDE, column * SIDE) for row in across for column in across]
        self.squares = [
            [self.rest[row + a, column + b] for a, b in PLACES] for row, column in corners
        ]
        self.members = [[number] for number in range(len(corners))]
        self.corners = corners

    def run(self, block: Any, method: MergePairs, merges: bool) -> None:
        states = torch.cat([self.first, *(torch.stack(each) for each in self.squares)])
        counts = [len(each) if method.proportional_attention else 1 for each in self.members]
        sizes = torch.tensor([1.0, *(count for count in counts for _ in PLACES)])
        states, keys = attend(block, states, sizes)
        self._take(states)
        if merges:
            self._merge(method, keys)
        states = torch.cat([self.first, *(torch.stack(each) for each in self.squares)])
        self._take(feed(block, states))

    def _take(self, states: Tensor) -> None:
        self.first = states[:1]
        self.squares = [list(each) for each in states[1:].split(len(PLACES))]

    def _merge(self, method: MergePairs, keys: Tensor) -> None:
        """As the method does it: pairs by the sum of a square's states and of its mean keys."""
        of_squares = keys[:, 1:].unflatten(1, (-1, len(PLACES))).mean(2)
        scores = [torch.cat(each).sum() for each in self.squares]
        scores = [a + b for a, b in zip(scores, of_squares.mean(0).sum(-1), strict=True)]
        groups = method.plan(torch.stack([torch.tensor(0.0), *scores]), 1)[1:] - 1
        squares, members = [], []
        for group in range(int(groups.max()) + 1):
            parts = (groups == group).nonzero().flatten().tolist()
            weights = torch.tensor([float(len(self.members[part])) for part in parts])
            weights = weights / weights.sum()
            mixed = torch.stack([torch.stack(self.squares[part]) for part in parts])
            squares.append(list((mixed * weights[:, None, None]).sum(0)))
            members.append([each for part in parts for each in self.members[part]])
        self.squares, self.members = squares, members

    def spread(self) -> Tensor:
        """Every patch at its place again."""
        for square, members in zip(self.squares, self.members, strict=True):
            for member in members:
                row, column = self.corners[member]
                for (a, b), state in zip(PLACES, square, strict=True):
                    self.rest[row + a, column + b] = state
        return torch.cat([self.first, self.rest.flatten(0, 1)])


def run_slowly(encoder: Any, pixels: Tensor, method: MergePairs) -> tuple[Tensor, list[list[int]]]:
    """What the vision encoder gives, and the first square of each group of each crop."""
    blocks = encoder.encoder.layer if hasattr(encoder, "encoder") else encoder.layers
    crops = [SlowCrop(each.clone()) for each in encoder.embeddings(pixels)]
    for crop in crops:
        for number, block in enumerate(blocks):
            crop.run(block, method, number in method.encoder_stages)
    spread = encoder.layernorm(torch.stack([crop.spread() for crop in crops]))
    return spread, [sorted(min(each) for each in crop.members) for crop in crops]


@pytest.mark.parametrize("stages", [(0,), (0, 1)])
@pytest.mark.parametrize("proportional", [False, True])
@pytest.mark.parametrize("name", [each for each in NAMES if each in ZOO])
def test_merged_squares_equal_those_merged_by_hand(
    name: str, proportional: bool, stages: tuple[int, ...]
) -> None:
    model: Any = ZOO[name].build()
    entry, inputs = ZOO[name], ZOO[name].inputs("ragged")
    encoder, seen = model.model.vision_tower, []
    method = MergePairs(2, stages, (), proportional, inside_vision_blocks=True)
    with torch.no_grad():
        model(**inputs)  # transformers puts hooks on the model in its first pass
        before, visual = fingerprint(model), entry.visual(inputs)
        expected, firsts = run_slowly(encoder, inputs["pixel_values"], method)
        with tc.prune(model, method, prompt=entry.user_words(inputs)) as run:
            handle = encoder.register_forward_hook(lambda *call: seen.append(call[-1]))
            found = model(**inputs).logits
            handle.remove()
        assert fingerprint(model) == before
        torch.testing.assert_close(seen[0].last_hidden_state, expected, atol=1e-5, rtol=0)
        crops, gone = iter(firsts), torch.zeros_like(visual)
        for trace in run.trace:
            own = [next(crops) for _ in range(trace.visual_tokens // SQUARES)]
            kept = [SQUARES * crop + each for crop, places in enumerate(own) for each in places]
            assert trace.kept.tolist() == kept
            dropped = visual[trace.sample].nonzero().flatten()
            gone[trace.sample, dropped] = True
            gone[trace.sample, dropped[trace.kept]] = False
        encoder.register_forward_hook(lambda *call: put(call[-1], expected))
        left = inputs["attention_mask"].bool() & ~gone
        want = blocked_forward(model, inputs, gone, 0)
    torch.testing.assert_close(found[left], want[left], atol=1e-5, rtol=0)


def put(output: Any, states: Tensor) -> Any:
    output.last_hidden_state = states
    return output


@pytest.mark.parametrize(
    "method", [tc.ToMe(4), tc.FiCoCoV(4), tc.MustDrop(4, merge_threshold=-1.0)]
)
def test_published_methods_merge_squares(method: Method) -> None:
    entry, inputs = ZOO["internvl"], ZOO["internvl"].inputs("ragged")
    words = entry.user_words(inputs)
    with torch.no_grad(), tc.prune(built("internvl"), method, prompt=words) as run:
        assert built("internvl")(**inputs).logits.isfinite().all()
    crops = [trace.visual_tokens // SQUARES for trace in run.trace]
    if isinstance(method, tc.MustDrop):  # its windows are 3 x 3: each crop becomes one token
        assert [trace.tokens_per_layer[0] for trace in run.trace] == crops
    else:
        assert [len(trace.kept) for trace in run.trace] == [4 * count for count in crops]


def test_squares_are_joined_and_parted() -> None:
    squares = Squares(rows=2, columns=3, patches=4, classes=1)
    states = torch.arange(50).view(1, 25, 2)
    joined = squares.join(states)
    assert joined.shape == (1, 7, 8)
    assert joined[0, 1].tolist() == [2, 3, 4, 5, 6, 7, 8, 9]
    assert torch.equal(squares.part(joined), states)
    assert squares.get_tokens(torch.tensor([[0, 3, 1]])).tolist() == [
        [0, 9, 10, 11, 12, 1, 2, 3, 4]
    ]


def test_a_row_is_cut_spread_and_averaged() -> None:
    """Two images of 2 and 3 squares of one patch, the second one's merged two by one."""
    sets = [
        CropSet(Squares(1, 2, 1, 0), torch.tensor([[1, 0]]), (1,)),
        CropSet(Squares(1, 3, 1, 0), torch.tensor([[2, 4, 3]]), (1,)),
    ]
    row = build_row(sets, torch.device("cpu"))
    values = torch.arange(5.0).unsqueeze(-1)
    assert [each.flatten().tolist() for each in row.cut(values)] == [[1, 0], [2, 4, 3]]
    merged = row.merge([torch.tensor([[0, 1]]), torch.tensor([[1, 0, 1]])], [2, 2])
    assert merged.compute_first_positions().tolist() == [1, 0, 4, 2]
    arranged = merged.arrange(merged.number_segments(torch.tensor([0, 1, 3, 5])))
    assert arranged.average(values).flatten().tolist() == [0, 1, 2.5, 4]
    spread = arranged.spread(torch.tensor([[10.0], [11.0], [12.0], [13.0]]))
    assert spread.flatten().tolist() == [10, 11, 12, 12, 13]
