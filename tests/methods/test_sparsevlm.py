"""SparseVLM does what its formulas say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.methods.slow_decoder import slow_decoder, states_before_decoder
from tests.methods.slow_sparsevlm import clusters_of, slow_raters, slow_stage
from tests.methods.views import hand_made
from tests.zoo import ZOO
from tokencover.errors import InputError
from tokencover.methods import Choice, View
from tokencover.methods.sparsevlm import TOKEN_LISTS, RecyclingPlan, SparseVLM, select_raters
from tokencover.pruning.prune import prune

ENDS = {192: 113, 128: 39, 96: 27, 64: 18}
OUTPUT_MEANS = {192: 192.03125, 128: 128.625, 96: 96.9375, 64: 64.8125}
INPUT_MEANS = {192: 206.5, 128: 145.40625, 96: 114.09375, 64: 82.25}


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOKEN_LISTS)
def test_the_published_lists_and_their_means(name: int) -> None:
    counts = SparseVLM(ENDS[name]).schedule(ENDS[name], 576, 32)
    assert sum(counts) / 32 == INPUT_MEANS[name]
    assert sum([*counts[1:], ENDS[name]]) / 32 == OUTPUT_MEANS[name]
    after = [counts[0], counts[3], counts[7], counts[16]]
    assert counts[2] == counts[0] == 576
    assert (counts[6], counts[15], counts[31]) == (counts[3], counts[7], counts[16])
    plans = [RecyclingPlan.for_total(*pair) for pair in zip(after[1:], after, strict=False)]
    assert tuple(plan.kept for plan in plans) == TOKEN_LISTS[name]


@pytest.mark.parametrize("name", TOKEN_LISTS)
def test_layer_mean_counts_what_blocks_work_on(name: int) -> None:
    view = hand_made([randn(576, 2)], block=3, depth=32)
    wanted = round(INPUT_MEANS[name])
    (left,) = SparseVLM(wanted, budget_mode="layer_mean").num_kept(view)
    assert abs(left - ENDS[name]) <= 1
    (fewer,) = SparseVLM(name, budget_mode="layer_mean").num_kept(view)
    assert fewer < ENDS[name]


def test_budget_one_differs_from_fraction_one() -> None:
    view = hand_made([randn(576, 2)], block=3, depth=32)
    assert SparseVLM(1.0, budget_mode="published").num_kept(view) == [576]
    with pytest.raises(InputError, match="cannot"):
        SparseVLM(1, budget_mode="published").num_kept(view)


@pytest.mark.parametrize("depth", [4, 5, 24, 28, 32, 40])
@pytest.mark.parametrize("total", [7, 100, 576])
def test_schedule_falls_and_cost_grows_with_count(depth: int, total: int) -> None:
    method, spent = SparseVLM(1), 0
    for left in range(1, total + 1):
        counts = method.schedule(left, total, depth)
        assert len(counts) == depth
        assert counts == sorted(counts, reverse=True)
        assert (counts[0], counts[-1]) == (total, left)
        assert sum(counts) > spent
        spent = sum(counts)
    assert set(counts) == {total}


def test_counts_between_lists_interpolated_linearly() -> None:
    """76 is midway between 39 and 113; halves are rounded up."""
    counts = SparseVLM(76).schedule(76, 576, 32)
    assert (counts[3], counts[7], counts[16]) == (311, 161, 76)
    assert SparseVLM(9).schedule(9, 576, 32)[3:8:4] == [41, 16]
    assert SparseVLM(380).schedule(380, 5760, 32)[3:8:4] == [3068, 1118]


def test_places() -> None:
    assert SparseVLM(1).pruning_layers(32) == (0, 3, 7, 16)
    assert SparseVLM(1).watched_layers(32) == (2, 6, 15)
    assert SparseVLM(1).pruning_layers(40) == (0, 4, 9, 20)
    assert SparseVLM(1).pruning_layers(5) == (0, 1, 2, 3)
    assert SparseVLM(1).pruning_layers(2) == (0, 1)
    assert SparseVLM(1, stages=(1, 2)).pruning_layers(5) == (0, 2, 3)
    assert SparseVLM(9, stages=(1, 2)).schedule(9, 90, 4)[-2:] == [49, 9]
    with pytest.raises(InputError, match="1 layers"):
        SparseVLM(1).pruning_layers(1)


# ---- one stage on hand-made views ---------------------------------------------------------------


def views(sizes: list[int], behind: list[int], depth: int = 5) -> list[View]:
    """The places before the decoder and at the first stage of the same samples."""
    states = [randn(size, 8, seed=size) for size in sizes]
    words = [randn(tail, 8, seed=100 + tail) for tail in behind]
    maps = [
        randn(2, 2 + size + tail, 2 + size + tail, seed=50 + size).softmax(-1)
        for size, tail in zip(sizes, behind, strict=True)
    ]
    notes: dict[str, Any] = {}
    return [
        hand_made(
            states,
            behind=behind,
            words=words,
            block=block,
            depth=depth,
            attention={0: maps},
            notes=notes,
        )
        for block in (0, 1)
    ]


SIZES, AFTER = [40, 9, 77, 24], [5, 3, 1, 8]


def test_raters_equal_the_slow_ones() -> None:
    first, _ = views(SIZES, AFTER)
    found = select_raters(first)
    for sample, (size, tail) in enumerate(zip(SIZES, AFTER, strict=True)):
        expected = slow_raters(first.hidden_states[sample, :size], first.text[sample, :tail])
        places = first.text_positions[sample, expected].tolist()
        assert found[sample][found[sample] >= 0].tolist() == places


def test_identical_text_tokens_all_become_raters() -> None:
    view = hand_made([randn(4, 3)], words=[torch.ones(3, 3)], block=0)
    assert select_raters(view).tolist() == [[6, 7, 8]]


def chosen(method: SparseVLM, first: View, second: View) -> Choice:
    start = method.choose(first)
    assert start.hidden_states is None
    assert [len(each) for each in start.kept] == first.mask.sum(-1).tolist()
    return method.choose(second)


@pytest.mark.parametrize("budget", [1, 2, 5, 8, 0.4, 1.0])
@pytest.mark.parametrize("positions", ["reindex", "original"])
def test_a_stage_equals_the_slow_one(budget: int | float, positions: Any) -> None:
    method = SparseVLM(budget, positions=positions, stages=(0,))
    first, second = views(SIZES, AFTER)
    choice = chosen(method, first, second)
    assert choice.hidden_states is not None
    assert choice.sources is not None
    for sample, (size, tail) in enumerate(zip(SIZES, AFTER, strict=True)):
        states = first.hidden_states[sample, :size]
        who = slow_raters(states, first.text[sample, :tail])
        places = first.text_positions[sample, who]
        rows = second.attention(0, first.text_positions)[sample, :, who, :size]
        assert len(places) == rows.shape[1]
        left = method.num_kept(second)[sample]
        kept, centers, means = slow_stage(states, rows.double().mean((0, 1)), left)
        if left == size:
            kept, centers, means = list(range(size)), [], []
        slots = choice.kept[sample].tolist()
        assert slots == sorted(set(slots))
        assert len(slots) == left
        expected = [(token, states[token].double()) for token in kept]
        expected += list(zip(centers, means, strict=True))
        if positions == "original":
            expected.sort(key=lambda pair: pair[0])
            assert slots == [token for token, _ in expected]
        assert choice.sources[sample].tolist() == [token for token, _ in expected]
        found = choice.hidden_states[sample, choice.kept[sample]]
        torch.testing.assert_close(found.double(), torch.stack([s for _, s in expected]))
        assert choice.details[sample] == {"clusters": len(centers)}


@pytest.mark.parametrize("positions", ["reindex", "original"])
def test_a_batch_equals_its_samples(positions: Any) -> None:
    method = SparseVLM(0.3, positions=positions)
    together = chosen(method, *views(SIZES, AFTER))
    assert together.hidden_states is not None
    assert together.sources is not None
    for sample, (size, tail) in enumerate(zip(SIZES, AFTER, strict=True)):
        alone = chosen(method, *views([size], [tail]))
        assert alone.hidden_states is not None
        assert alone.sources is not None
        assert torch.equal(together.kept[sample], alone.kept[0])
        assert torch.equal(together.sources[sample], alone.sources[0])
        kept = alone.kept[0]  # what is not kept is never read
        torch.testing.assert_close(
            together.hidden_states[sample, kept], alone.hidden_states[0, kept]
        )


def test_ties_go_to_the_lowest_index() -> None:
    first, second = views([12], [3])
    flat = hand_made(
        [randn(12, 8)], block=1, depth=5, attention={0: [torch.ones(1, 17, 17)]}, notes=first.notes
    )
    choice = chosen(SparseVLM(5, stages=(0,)), first, flat)
    assert choice.sources is not None
    assert choice.sources[0][:4].tolist() == [0, 1, 2, 3]
    assert choice.kept[0].tolist() == [0, 1, 2, 3, 11]
    assert second.layer_idx == 1


def test_adaptive_rank_limited_by_budget() -> None:
    sizes, tails = [40, 60], [9, 4]
    ranks = []
    first, second = views(sizes, tails)
    for sample, (size, tail) in enumerate(zip(sizes, tails, strict=True)):
        who = slow_raters(first.hidden_states[sample, :size], first.text[sample, :tail])
        rows = second.attention(0, first.text_positions)[sample, :, who, :size].mean(0)
        ranks.append(int(torch.linalg.matrix_rank(rows.double())))
        assert ranks[-1] == len(who)
    wanted = [int(rank * 3 + 2) for rank in ranks]
    free = chosen(SparseVLM(1.0, adaptive=(3, 2)), *views(sizes, tails))
    counts = [k + clusters_of(n - k) for k, n in zip(wanted, sizes, strict=True)]
    assert [len(each) for each in free.kept] == counts
    tight = chosen(SparseVLM(7, adaptive=(3, 2), stages=(0,)), *views(sizes, tails))
    assert [len(each) for each in tight.kept] == [7, 7]
    everything = chosen(SparseVLM(1.0, adaptive=(1, 0)), *views([1, 1], tails))
    assert [len(each) for each in everything.kept] == [1, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stages": (6, 2)}, r"\(6, 2\)"),
        ({"stages": ()}, "stages"),
        ({"stages": (-1,)}, "stages"),
        ({"adaptive": (0, 1)}, "adaptive"),
        ({"adaptive": (1, 2, 3)}, "adaptive"),
        ({"positions": "new"}, "positions"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SparseVLM(4, **settings)


def test_image_without_text_after_raises() -> None:
    with pytest.raises(InputError, match=r"samples \[1\]"):
        SparseVLM(2).choose(hand_made([randn(4, 3), randn(5, 3)], behind=[2, 0], block=0))


# ---- models -------------------------------------------------------------------------------------


def slow_logits(model: Any, states: Tensor, visual: list[int], budget: int) -> Tensor:
    """One image: the stages of a decoder of five blocks, slowly."""
    begin, count = visual[0], len(visual)
    counts = SparseVLM(budget).schedule(budget, count, 5)
    who = slow_raters(states[visual], states[begin + count :])
    behind = len(states) - begin - count
    present = count

    def change(states: Tensor, attention: Tensor) -> Tensor:
        nonlocal present
        rows = [len(states) - behind + word for word in who]
        end = begin + present
        scores = attention[rows, begin:end].double().mean(0)
        present = left.pop(0)
        kept, _, means = slow_stage(states[begin:end], scores, present)
        middle = [states[begin + token] for token in kept] + [mean.float() for mean in means]
        return torch.stack([*states[:begin], *middle, *states[end:]])

    left = [counts[block] for block in (1, 2, 3)]
    return slow_decoder(model, states, dict.fromkeys((1, 2, 3), change))


@pytest.mark.parametrize("budget", [3, 6, 9])
def test_model_equals_reference_decoder(budget: int) -> None:
    entry = ZOO["llava"]
    model = entry.build("eager")
    inputs = entry.inputs("ragged")
    states = states_before_decoder(model, inputs)
    with torch.no_grad(), prune(model, SparseVLM(budget), prompt=entry.user_words(inputs)) as run:
        found = model(**inputs).logits
    for row, trace in enumerate(run.trace):
        assert trace.sample == row
        real = inputs["attention_mask"][row].bool()
        visual = entry.visual(inputs)[row][real].nonzero().squeeze(-1).tolist()
        assert visual == list(range(visual[0], visual[-1] + 1))
        expected = slow_logits(model, states[row, real], visual, budget)
        last = int(real.nonzero()[-1])
        torch.testing.assert_close(found[row, last], expected, rtol=1e-4, atol=1e-5)
        assert trace.tokens_per_layer == SparseVLM(budget).schedule(budget, len(visual), 5)
        assert len(trace.kept) == budget


@pytest.mark.parametrize("name", ["llava", "llava_next"])
def test_generation_batch_equals_single_runs(name: str) -> None:
    entry = ZOO[name]
    model = entry.build()
    options = {"max_new_tokens": 4, "do_sample": False}
    method = SparseVLM(0.4)
    batch = entry.inputs("two_images")
    with prune(model, method, prompt=entry.user_words(batch)):
        together = model.generate(**batch, **options)  # type: ignore[operator]
    for row, sample in enumerate(entry.samples("two_images")):
        single = entry.collate([sample])
        with prune(model, method, prompt=entry.user_words(single)):
            alone = model.generate(**single, **options)  # type: ignore[operator]
        assert torch.equal(together[row, -4:], alone[0, -4:])


@dataclass(frozen=True)
class Overheard(SparseVLM):
    """Keeps its choices."""

    choices: ClassVar[list[Choice]] = []

    def choose(self, view: View) -> Choice:
        self.choices.append(super().choose(view))
        return self.choices[-1]


@pytest.mark.parametrize("positions", ["reindex", "original"])
@pytest.mark.parametrize("name", ["llava", "llava_next"])
def test_trace_sources_name_remaining_states(name: str, positions: Any) -> None:
    entry = ZOO[name]
    inputs = entry.inputs("ragged")
    Overheard.choices.clear()
    method, model = Overheard(7, positions=positions), entry.build()
    with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)) as run:
        model(**inputs)
    assert len(Overheard.choices) == 4
    for row, trace in enumerate(run.trace):
        tokens = list(range(trace.visual_tokens))
        for choice in Overheard.choices[1:]:
            assert choice.sources is not None
            tokens = [tokens[source] for source in choice.sources[row].tolist()]
        assert trace.kept.tolist() == tokens
        assert len(set(tokens)) == 7


def test_gradients_flow_through_clusters() -> None:
    entry = ZOO["llava"]
    model = entry.build()
    inputs = entry.inputs("single")
    with prune(model, SparseVLM(4), prompt=entry.user_words(inputs)):
        loss = model(**inputs, labels=inputs["input_ids"]).loss
    loss.backward()
    weights: Any = model.model.multi_modal_projector
    assert float(weights.linear_1.weight.grad.abs().sum()) > 0
