"""MustDrop does what its formulas say."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.methods.slow_decoder import slow_decoder, states_before_decoder
from tests.methods.slow_mustdrop import alike_in_places, slow_key_set, slow_merge, slow_stage
from tests.methods.views import hand_made
from tests.zoo import ZOO
from tokencover.errors import InputError
from tokencover.methods import View, VisionOutputs, VisionView
from tokencover.methods.mustdrop import MustDrop, merge_windows, select_key_set
from tokencover.pruning.prune import prune


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- the vision encoder -------------------------------------------------------------------------


def vision_view(states: Tensor, grid: tuple[int, int], classes: int) -> VisionView:
    crops, count, _ = states.shape

    def nothing() -> Tensor:
        raise AssertionError("not needed")

    return VisionView(
        block=1,
        num_blocks=4,
        hidden_states=states,
        classes=classes,
        sizes=torch.ones(crops, count, dtype=torch.int64),
        grid=grid,
        crops=(1,) * crops,
        feature_block=2,
        members=torch.arange(count).expand(crops, -1),
        keys=nothing,
        attention=nothing,
    )


def test_the_class_token_stays_alone_and_first() -> None:
    tokens = alike_in_places((6, 6), 4, (0.1, 0.1))[None]
    states = torch.cat([randn(1, 1, 8, seed=9), tokens], dim=1)
    choice = MustDrop(4).merge_in_vision_encoder(vision_view(states, (6, 6), classes=1))
    groups, merged = merge_windows(tokens, (6, 6), 3, 0.8)
    assert choice.groups.tolist() == [[0, *(groups[0] + 1).tolist()]]
    assert torch.equal(choice.hidden_states, torch.cat([states[:, :1], merged], dim=1))


def encodings(crops: int, tokens: int, index: Tensor, classes: int = 1) -> VisionOutputs:
    """Random queries and keys of a vision encoder of three blocks; only the last is read."""
    queries, keys = randn(crops, 2, tokens, 4, seed=6), randn(crops, 2, tokens, 4, seed=7)

    def last(found: Tensor, block: int) -> Tensor:
        assert block == 2
        return found

    return VisionOutputs(
        features=randn(crops, tokens, 5),
        classes=classes,
        num_blocks=3,
        feature_block=1,
        scaling=0.5,
        index=index,
        queries=functools.partial(last, queries),
        keys=functools.partial(last, keys),
        project=lambda features: features,
    )


def class_row(encoded: VisionOutputs, crop: int, tokens: Sequence[int]) -> Tensor:
    """The class token's attention to these and itself, mean over heads, itself left out."""
    queries, keys = encoded.queries(2)[crop].double(), encoded.keys(2)[crop].double()
    rows = [
        torch.stack([queries[head, 0] @ keys[head, j] for j in (0, *tokens)]) * encoded.scaling
        for head in range(len(queries))
    ]
    return torch.stack([row.softmax(0) for row in rows]).mean(0)[1:]


@pytest.mark.parametrize("share", [0.0, 0.08, 0.3, 1.0])
def test_key_set_has_largest_class_attention(share: float) -> None:
    encoded = encodings(3, 26, torch.zeros(1, 1))
    found = select_key_set(encoded, share).view(3, 26)
    for crop in range(3):
        chosen = slow_key_set(class_row(encoded, crop, range(1, 26)), share)
        assert found[crop].nonzero().squeeze(-1).tolist() == sorted(1 + j for j in chosen)
    assert int(found[0].sum()) == math.ceil(round(25 * share, 9))


def test_merged_tokens_count_once_in_key_set() -> None:
    encoded = encodings(2, 26, torch.zeros(1, 1))
    copies = [3, 4, 8, 20]
    encoded.keys(2)[0][:, copies] = encoded.keys(2)[0][:, 3:4].clone()
    # So much looked at that counting it four times would change every other weight.
    encoded.keys(2)[0][0, copies] = 2 * encoded.queries(2)[0][0, 0]
    alone = [j for j in range(1, 26) if j not in copies[1:]]
    found = select_key_set(encoded, 0.2).view(2, 26)[0]
    weights = class_row(encoded, 0, alone)
    chosen = [alone[j] for j in slow_key_set(weights, 0.2)]
    assert 3 in chosen
    assert len(chosen) == 5
    assert found.nonzero().squeeze(-1).tolist() == sorted({*chosen, *copies})


# ---- one stage on hand-made views ---------------------------------------------------------------

SIZES, AFTER = [20, 9, 33], [4, 1, 6]
CROPS, TOKENS = 3, 34


def view_of(
    samples: Sequence[int], block: int = 1, notes: dict[str, Any] | None = None, **changes: Any
) -> View:
    """Some of the samples; each has a crop of its own, and its last token is from none."""
    sizes = [SIZES[each] for each in samples]
    index = torch.full((len(samples), max(sizes)), -1)
    for row, each in enumerate(samples):
        index[row, : SIZES[each] - 1] = TOKENS * each + torch.arange(1, SIZES[each])
    maps = [
        randn(2, 2 + SIZES[i] + AFTER[i], 2 + SIZES[i] + AFTER[i], seed=i).softmax(-1)
        for i in samples
    ]
    return hand_made(
        [randn(size, 4) for size in sizes],
        behind=[AFTER[each] for each in samples],
        block=block,
        depth=5,
        attention={block - 1: maps},
        encoded=encodings(CROPS, TOKENS, index),
        notes={} if notes is None else notes,
        **changes,
    )


def rows_and_keys(view: View, row: int, sample: int) -> tuple[Tensor, set[int]]:
    assert view.vision is not None
    size = SIZES[sample]
    rows = view.attention(view.layer_idx - 1, view.text_positions)[row, :, : AFTER[sample], :size]
    tower = slow_key_set(class_row(view.vision, sample, range(1, TOKENS)), 0.3)
    return rows.mean(0), {token for token in tower if token < size - 1}


@pytest.mark.parametrize("budget", [1, 3, 8, 0.5, 1.0])
def test_a_stage_equals_the_slow_one(budget: int | float) -> None:
    method = MustDrop(budget, key_share=0.3, stages=(0,))
    view = view_of([0, 1, 2])
    choice = method.choose(view)
    for sample, size in enumerate(SIZES):
        rows, key = rows_and_keys(view, sample, sample)
        count = budget if isinstance(budget, int) else math.floor(size * budget + 0.5)
        expected = slow_stage(rows, key, count)
        assert len(expected) == min(count, size)
        assert sorted(choice.kept[sample].tolist()) == expected
        assert choice.details[sample] == {"key_tokens": len(key)}
        alone = method.choose(view_of([sample]))
        assert alone.kept[0].tolist() == choice.kept[sample].tolist()


@pytest.mark.parametrize("budget", [4, 1.0])
@pytest.mark.parametrize("thresholds", [(0.06, 0.05), (0.04, 0.08), (1.0, 0.0), (1.0, 1.0)])
def test_thresholds_equal_the_slow_ones(
    thresholds: tuple[float, float], budget: int | float
) -> None:
    method = MustDrop(
        budget,
        key_share=0.3,
        global_threshold=thresholds[0],
        individual_threshold=thresholds[1],
        stages=(0,),
    )
    view = view_of([0, 1, 2])
    choice = method.choose(view)
    for sample, size in enumerate(SIZES):
        rows, key = rows_and_keys(view, sample, sample)
        ceiling = budget if isinstance(budget, int) else size
        expected = slow_stage(rows, key, ceiling, thresholds)
        assert sorted(choice.kept[sample].tolist()) == expected


def test_one_token_stays_when_thresholds_drop_all() -> None:
    method = MustDrop(1.0, key_share=0.0, global_threshold=1.0, individual_threshold=1.0)
    view = view_of([0, 1, 2])
    for sample, kept in enumerate(method.choose(view).kept):
        rows, _ = rows_and_keys(view, sample, sample)
        assert kept.tolist() == [int(rows.sum(0).argmax())]


def test_ties_go_to_the_lowest_index() -> None:
    flat = hand_made(
        [torch.ones(9, 2)],
        block=1,
        depth=5,
        attention={0: [torch.ones(2, 14, 14)]},
        encoded=encodings(1, 10, torch.full((1, 9), -1)),
    )
    assert sorted(MustDrop(3, stages=(0,)).choose(flat).kept[0].tolist()) == [0, 1, 2]


def test_merged_tokens_do_not_count_twice() -> None:
    """Of twice as many tokens, half were merged before the decoder."""
    total = 2 * torch.tensor(SIZES)
    for budget, wanted in ((6, [6, 6, 6]), (0.25, [10, 5, 17]), (0.9, SIZES), (1000, SIZES)):
        method, notes = MustDrop(budget, stages=(0, 2)), {}  # type: ignore[var-annotated]
        first = method.choose(view_of([0, 1, 2], notes=notes, total=total))
        middle = [math.isqrt(size * left) for size, left in zip(SIZES, wanted, strict=True)]
        assert [len(each) for each in first.kept] == middle
        # The same tokens once more: what is left in the end was settled at the first stage.
        last = method.choose(view_of([0, 1, 2], 3, notes, total=total))
        assert [len(each) for each in last.kept] == wanted
    view = view_of([0, 1, 2], total=total)
    mean = MustDrop(0.3, budget_mode="layer_mean", stages=(0,))
    for size, kept in zip(SIZES, mean.choose(view).kept, strict=True):
        assert abs((size + 4 * len(kept)) / 5 - 0.6 * size) <= 0.8


def test_places() -> None:
    method = MustDrop(1)
    assert method.pruning_layers(32) == (3, 7, 11, 15)
    assert method.watched_layers(32) == (2, 6, 10, 14)
    assert method.pruning_layers(40) == (4, 9, 14, 19)
    assert method.pruning_layers(5) == (1, 2, 3, 4)
    assert method.vision_blocks(24, 22) == (1,)
    assert MustDrop(1, merge_threshold=None).vision_blocks(24, 22) == ()
    assert method.watched_vision_blocks(24, 22) == (23,)
    assert not method.inside_vision_blocks
    counts = method.schedule(16, 256, 32)
    assert (counts[0], counts[3], counts[7], counts[11], counts[15]) == (256, 128, 64, 32, 16)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_share": 1.5}, "1.5"),
        ({"merge_threshold": 2.0}, "2.0"),
        ({"global_threshold": 0.1}, "both or none"),
        ({"individual_threshold": 0.1}, "both or none"),
        ({"stages": (3, 3)}, "stages"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MustDrop(4, **settings)


def test_missing_class_token_or_text_raises() -> None:
    states = [randn(4, 3)]
    encoded = encodings(1, 9, torch.arange(4)[None], classes=0)
    with pytest.raises(InputError, match="has none: use a model with a CLIP"):
        MustDrop(2).choose(hand_made(states, encoded=encoded))
    with pytest.raises(InputError, match=r"samples \[0\]"):
        MustDrop(2).choose(hand_made(states, behind=0, encoded=encodings(1, 9, encoded.index)))


# ---- models -------------------------------------------------------------------------------------


def slow_tower(tower: Any, pixels: Tensor, threshold: float) -> list[dict[str, Any]]:
    """For each crop its groups, the features of their tokens, and the last block's class row."""
    side = pixels.shape[-1] // tower.config.patch_size
    first, *others = tower.encoder.layers
    states = first(tower.pre_layrnorm(tower.embeddings(pixels)), None)
    merged = slow_merge(states[:, 1:], (side, side), threshold)
    found = []
    for crop, groups in zip(states, merged, strict=True):
        tokens = torch.stack([crop[0], *(crop[1:][group].mean(0) for group in groups)])[None]
        for block in others:
            before = tokens
            normed = block.layer_norm1(before)
            weights = block.self_attn(normed, attention_mask=None, output_attentions=True)[1]
            tokens = block(before, None)
        found.append(
            {"groups": groups, "features": before[0, 1:], "row": weights[0, :, 0, 1:].mean(0)}
        )
    return found


def slow_logits(
    model: Any, states: Tensor, visual: list[int], crop: dict[str, Any], budget: int
) -> tuple[Tensor, list[int]]:
    """Logits of a sample with one image, and the visual tokens that each stage leaves."""
    firsts = [group[0] for group in crop["groups"]]
    features = model.model.multi_modal_projector(crop["features"])
    begin, end = visual[0], visual[-1] + 1
    states = torch.cat([states[:begin], features, states[end:]])
    key, present = set(slow_key_set(crop["row"], 0.08)), len(firsts)
    counts, stage, left = [present], 0, firsts

    def change(states: Tensor, attention: Tensor) -> Tensor:
        nonlocal stage, key, left
        stage, now = stage + 1, len(left)
        rows = attention[begin + now :, begin : begin + now]
        count = math.floor(present * (budget / present) ** (stage / 4) + 1e-9)
        kept = slow_stage(rows, key, count)
        key = {kept.index(token) for token in key if token in kept}
        left = [left[token] for token in kept]
        counts.append(len(left))
        middle = [states[begin + token] for token in kept]
        return torch.stack([*states[:begin], *middle, *states[begin + now :]])

    logits = slow_decoder(model, states, dict.fromkeys((1, 2, 3, 4), change))
    return logits, [*counts, *left]


@pytest.mark.parametrize(("threshold", "count"), [(1.0, 25), (-1.0, 17)])
def test_model_equals_reference_implementation(threshold: float, count: int) -> None:
    """The zoo's vision encoder sees 5 x 5 patches: one window, and a border that fills none."""
    entry = ZOO["llava"]
    model: Any = entry.build("eager")
    inputs = entry.inputs("ragged")
    method = MustDrop(5, merge_threshold=threshold)
    with torch.no_grad():
        states = states_before_decoder(model, inputs)
        crops = slow_tower(model.model.vision_tower, inputs["pixel_values"], threshold)
        with prune(model, method, prompt=entry.user_words(inputs)) as run:
            found = model(**inputs).logits
    assert len(crops[0]["groups"]) == count
    for row, trace in enumerate(run.trace):
        real = inputs["attention_mask"][row].bool()
        visual = entry.visual(inputs)[row][real].nonzero().squeeze(-1).tolist()
        with torch.no_grad():
            expected, left = slow_logits(model, states[row, real], visual, crops[row], 5)
        last = int(real.nonzero()[-1])
        torch.testing.assert_close(found[row, last], expected, rtol=1e-4, atol=1e-5)
        assert trace.tokens_per_layer == left[:5]
        assert trace.kept.tolist() == left[5:]


@pytest.mark.parametrize("kind", ["ragged", "two_images"])
def test_exactly_the_budget_is_left_of_tiles(kind: str) -> None:
    entry = ZOO["llava_next"]
    model = entry.build()
    inputs = entry.inputs(kind)
    for threshold, least in ((None, 6), (-1.0, 5)):
        method = MustDrop(6, merge_threshold=threshold)
        with torch.no_grad(), prune(model, method, prompt=entry.user_words(inputs)) as run:
            model(**inputs)
        for trace in run.trace:
            assert len(trace.kept) == min(6, trace.tokens_per_layer[0]) >= least
            assert trace.tokens_per_layer == sorted(trace.tokens_per_layer, reverse=True)


def test_unsupported_models_raise() -> None:
    with pytest.raises(InputError, match="MustDrop merges tokens in the vision encoder"):
        prune(ZOO["llava_onevision"].build(), MustDrop(4))
    for threshold in (None, 0.8):
        method = MustDrop(4, merge_threshold=threshold, positions="original")
        with pytest.raises(InputError, match=r"Qwen2-VL has no class token"):
            prune(ZOO["qwen2_vl"].build(), method)
