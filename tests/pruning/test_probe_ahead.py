"""Attention that has not happened yet, compared with eager attention maps."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import DISTINCT, built
from tests.pruning.test_probe import (
    CLOSE,
    Seen,
    Truth,
    Watch,
    asked,
    assert_true,
    dynamic,
    eavesdropping,
    places,
    refused,
    second_turn,
    static,
)
from tests.pruning.test_prune import fingerprint
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule, decoder_blocks, text_model
from tokencover.families.family import read_version
from tokencover.methods import Choice, View

FEW = [pytest.param(ZOO[name], id=name) for name in ("llava", "qwen2_vl", "qwen3_vl")]
TURNS = [pytest.param(ZOO[name], id=name) for name in ("llava", "internvl")]


@dataclass(frozen=True)
class Foresee(Watch):
    """Looks at all watched blocks up to the one about to run, then keeps random tokens."""

    blocks_watched: tuple[int, ...] = (1, 3)
    keeps_all_before: int = -1

    def choose(self, view: View) -> Choice:
        for block in self.blocks_watched:
            if block <= view.layer_idx:
                rows = view.attention(block, self.queries)
                self.seen.append(Seen(view.layer_idx, block, view, view.keys(block), rows))
        return KeepRandom.choose(self, view)

    def _kept(self, view: View, count: int) -> Tensor:
        everything = view.layer_idx == self.keeps_all_before
        return torch.arange(count) if everything else super()._kept(view, count)


@dataclass(frozen=True)
class LookAhead(Watch):
    """Runs some blocks ahead before one block, then keeps random tokens."""

    blocks_watched: tuple[int, ...] = ()
    before: int = 3
    blocks_ahead: tuple[nn.Module, ...] = ()

    def choose(self, view: View) -> Choice:
        if view.layer_idx == self.before:
            rows = view.ahead(self.blocks_ahead, self.queries)
            last = self.before + len(self.blocks_ahead) - 1
            self.seen.append(Seen(view.layer_idx, last, view, torch.empty(0), rows))
        return KeepRandom.choose(self, view)


def run(
    model: PreTrainedModel, method: Watch, entry: ZooEntry, inputs: Inputs, **options: Any
) -> Any:
    words = entry.user_words(inputs)
    method.asks.append(asked(inputs, words, entry.visual(inputs)))
    with torch.no_grad(), tc.prune(model, method, prompt=words):
        return model(**inputs, **options)


def truth_of(
    eager: PreTrainedModel, inputs: Inputs, gone: dict[int, Tensor], stages: Sequence[int]
) -> dict[int, Truth]:
    """What eager attention does if only these stages drop something."""
    with eavesdropping(eager) as truth:
        blocked_forward_schedule(eager, inputs, {stage: gone[stage] for stage in stages})
    return truth


def assert_rows(method: Watch, truth: dict[int, Truth], visual: Tensor) -> None:
    samples = visual.any(-1).nonzero().squeeze(-1).tolist()
    assert method.seen
    for seen in method.seen:
        for row, sample in enumerate(samples):
            there, real = seen.view.mask[row], method.queries[row] >= 0
            columns, queries = seen.view.positions[row, there], method.queries[row, real]
            expected = truth[seen.block].weights[sample][:, queries][..., columns]
            torch.testing.assert_close(seen.rows[row][:, real][..., there], expected, **CLOSE)
            assert expected.max() > 0.02
            assert not seen.rows[row][..., ~there].any()
            assert not seen.rows[row][:, ~real].any()


@pytest.mark.parametrize(("side", "stages"), [("left", (1, 3)), ("right", (0, 2))])
@pytest.mark.parametrize("entry", DISTINCT)
def test_the_block_about_to_run(entry: ZooEntry, side: Side, stages: tuple[int, ...]) -> None:
    """Both stages are watched: the first is asked before it runs, and after."""
    eager, inputs = built(entry.name, "eager"), entry.inputs("ragged", side)
    visual = entry.visual(inputs)
    method = Foresee(stages=stages, blocks_watched=stages)
    run(built(entry.name), method, entry, inputs)
    first, second = stages
    orders = [(first, first), (second, first), (second, second)]
    assert [(seen.before, seen.block) for seen in method.seen] == orders
    gone = dropped_by(method, inputs, visual)
    for seen, effective in zip(method.seen, ((), (first,), (first,)), strict=True):
        truth = truth_of(eager, inputs, gone, effective)
        assert_true(replace(method, seen=[seen]), truth, eager, visual)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_families(name: str) -> None:
    """Other text stacks: rotation of pairs or of some dimensions, norms, experts."""
    variant, model = VARIANTS[name], VARIANTS[name].build()
    visual = torch.isin(variant.inputs["input_ids"], torch.tensor([11, 12]))
    words = variant.inputs["attention_mask"].bool() & ~visual
    asks = [asked(variant.inputs, words, visual)]
    blocks = tuple(decoder_blocks(model))
    foresee = Foresee(stages=(1,), blocks_watched=(1,), asks=asks)
    ahead = LookAhead(stages=(0,), before=0, blocks_ahead=blocks, asks=asks)
    for method in (foresee, ahead):
        with torch.no_grad(), tc.prune(model, method, prompt=words):
            model(**variant.inputs)
    model.set_attn_implementation("eager")
    with torch.no_grad(), eavesdropping(model) as truth:
        model(**variant.inputs)
    assert_true(foresee, truth, model, visual)
    if not hasattr(text_model(model), "_deepstack_process"):  # it adds to the states in between
        assert_rows(ahead, truth, visual)


@pytest.mark.parametrize("cache", [dynamic, static])
@pytest.mark.parametrize("entry", TURNS)
def test_the_block_about_to_run_over_a_kept_cache(
    entry: ZooEntry, cache: Callable[[PreTrainedModel], Any]
) -> None:
    model, eager = built(entry.name), built(entry.name, "eager")
    first, second, both = second_turn(entry)
    start = first["input_ids"].shape[1]
    past, method = cache(model), Foresee()
    with torch.no_grad(), tc.prune(model, method, prompt=torch.ones(1, 1, dtype=torch.bool)):
        for inputs, end in ((first, start), (second, None)):
            method.seen.clear()
            method.asks.append(asked(inputs, entry.user_words(inputs), entry.visual(inputs)))
            turn = {**inputs, "attention_mask": both["attention_mask"][:, :end]}
            model(**turn, past_key_values=past, use_cache=True)
    earlier, later = (dropped_by(method, each, entry.visual(each)) for each in (first, second))
    effective = {(1, 1): (), (3, 1): (1,), (3, 3): (1,)}
    for seen in method.seen:
        now = effective[seen.before, seen.block]
        gone = {
            stage: torch.cat([earlier[stage], later[stage] & (stage in now)], 1)
            for stage in method.stages
        }
        truth = truth_of(eager, both, gone, method.stages)
        cut = {
            block: Truth(each.weights[:, :, start:, start:], each.states[:, start:])
            for block, each in truth.items()
        }
        assert_true(replace(method, seen=[seen]), cut, eager, entry.visual(second))


@pytest.mark.parametrize("positions", ["original", "reindex"])
@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("entry", TURNS)
def test_what_was_foreseen_happens_if_nothing_is_dropped(
    entry: ZooEntry, turns: int, positions: Any
) -> None:
    model = built(entry.name)
    method = Foresee(stages=(1, 2, 3), blocks_watched=(2,), keeps_all_before=2, positions=positions)
    first, second, both = second_turn(entry)
    past = dynamic(model)
    with torch.no_grad(), tc.prune(model, method, prompt=torch.ones(1, 1, dtype=torch.bool)):
        for inputs in (first, second)[:turns]:
            method.asks.append(asked(inputs, entry.user_words(inputs), entry.visual(inputs)))
            length = past.get_seq_length() + inputs["input_ids"].shape[1]
            turn = {**inputs, "attention_mask": both["attention_mask"][:, :length]}
            model(**turn, past_key_values=past, use_cache=True)
    assert [(seen.before, seen.block) for seen in method.seen] == [(2, 2), (3, 2)] * turns
    for before, after in zip(method.seen[::2], method.seen[1::2], strict=True):
        torch.testing.assert_close(before.rows, after.rows, **CLOSE)
        torch.testing.assert_close(before.keys, after.keys, **CLOSE)
        assert before.rows.max() > 0.02


@pytest.mark.parametrize("entry", FEW)
def test_rotated_keys_before_and_after_a_block_ran(entry: ZooEntry) -> None:
    found: dict[int, Tensor] = {}

    def ask(view: View) -> None:
        if view.layer_idx >= 2:
            found[view.layer_idx] = view.keys(2, view.text_positions, rotated=True)

    inputs = entry.inputs("ragged")
    method = replace(Watch(stages=(1, 2, 3), blocks_watched=(2,), ask=ask), asks=[torch.empty(0)])
    run(built(entry.name), method, entry, inputs)
    torch.testing.assert_close(found[2], found[3], **CLOSE)
    assert found[2].abs().max() > 0.1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("entry", FEW)
def test_the_models_own_blocks_ahead(entry: ZooEntry, side: Side, attention: str) -> None:
    eager, model = built(entry.name, "eager"), built(entry.name, attention)
    inputs = entry.inputs("ragged", side)
    visual = entry.visual(inputs)
    for ahead in (decoder_blocks(model)[3:4], decoder_blocks(model)[3:5]):
        method = LookAhead(blocks_ahead=tuple(ahead))
        run(model, method, entry, inputs)
        gone = dropped_by(method, inputs, visual)
        assert_rows(method, truth_of(eager, inputs, gone, (1,)), visual)


@pytest.mark.parametrize("entry", FEW)
def test_a_branch_of_other_blocks(entry: ZooEntry) -> None:
    model, inputs = built(entry.name), entry.inputs("ragged")
    branch = copy.deepcopy(tuple(decoder_blocks(model)[:2]))
    method = LookAhead(blocks_ahead=branch)
    run(model, method, entry, inputs)
    grafted = entry.build("eager")
    for block, other in zip(decoder_blocks(grafted)[3:5], branch, strict=True):
        block.load_state_dict(other.state_dict())
    visual = entry.visual(inputs)
    gone = dropped_by(method, inputs, visual)
    assert_rows(method, truth_of(grafted, inputs, gone, (1,)), visual)


def test_looking_ahead_before_the_decoder_with_new_positions() -> None:
    """Nothing was dropped yet, so the plain model's own maps are the truth."""
    entry = ZOO["llava"]
    model, inputs = built("llava"), entry.inputs("ragged")
    blocks = tuple(decoder_blocks(model)[:3])
    method = LookAhead(stages=(0,), before=0, blocks_ahead=blocks, positions="reindex")
    run(model, method, entry, inputs)
    eager = built("llava", "eager")
    with torch.no_grad(), eavesdropping(eager) as truth:
        eager(**inputs)
    assert_rows(method, truth, entry.visual(inputs))


def test_positions_without_gaps_ahead() -> None:
    """Ahead and about to run must agree on the positions that the tokens have by then."""
    entry = ZOO["llava"]
    model, inputs = built("llava"), entry.inputs("ragged")
    settings: dict[str, Any] = {"positions": "reindex"}
    ahead = LookAhead(blocks_ahead=tuple(decoder_blocks(model)[3:4]), **settings)
    run(model, ahead, entry, inputs)
    foreseen = Foresee(blocks_watched=(3,), **settings)
    run(model, foreseen, entry, inputs)
    torch.testing.assert_close(ahead.seen[0].rows, foreseen.seen[0].rows, **CLOSE)
    gaps = LookAhead(blocks_ahead=ahead.blocks_ahead)
    run(model, gaps, entry, inputs)
    assert (gaps.seen[0].rows - ahead.seen[0].rows).abs().max() > 1e-3


@pytest.mark.parametrize("entry", FEW)
def test_nobody_takes_looking_ahead_for_the_pass(entry: ZooEntry) -> None:
    model: Any = built(entry.name, "eager")
    inputs, blocks = entry.inputs("ragged"), decoder_blocks(model)
    wanted: dict[str, Any] = {"output_hidden_states": True, "output_attentions": True}
    plain = Watch()
    expected = run(model, plain, entry, inputs, **wanted)
    before = fingerprint(model)

    def ask(view: View) -> None:
        view.ahead(blocks, plain.queries)
        view.attention(view.layer_idx, plain.queries)
        for block in (0, 2):
            if block < view.layer_idx:
                rows = view.attention(block, plain.queries)
                method.seen.append(Seen(view.layer_idx, block, view, view.keys(block), rows))

    method = Watch(blocks_watched=(0, 1, 2, 3), ask=ask)
    found = run(model, method, entry, inputs, **wanted)
    assert torch.equal(found.logits, expected.logits)
    for name in ("hidden_states", "attentions"):
        assert len(found[name]) == len(expected[name])
        assert all(map(torch.equal, found[name], expected[name]))
    for one, other in zip(plain.seen, method.seen, strict=True):
        torch.testing.assert_close(one.rows, other.rows, **CLOSE)
        torch.testing.assert_close(one.keys, other.keys, **CLOSE)
    assert fingerprint(model) == before
    assert text_model(model).training is False


def test_the_sequence_is_let_go_after_the_choice() -> None:
    views: list[View] = []
    sequences: list[weakref.ref[Tensor]] = []

    def ask(view: View) -> None:
        keys: Any = view.keys
        views.append(view)
        sequences.append(weakref.ref(keys.__self__._upcoming.states))
        view.attention(view.layer_idx, places([-1], [-1], [-1]))

    entry = ZOO["llava"]
    run(built("llava"), Watch(blocks_watched=(1, 3), ask=ask), entry, entry.inputs("ragged"))
    gc.collect()
    assert len(sequences) == 2
    assert all(reference() is None for reference in sequences)
    with pytest.raises(tc.InputError, match="no longer about to run"):
        views[1].keys(3)
    with pytest.raises(tc.InputError, match="no longer about to run"):
        views[1].ahead(decoder_blocks(built("llava"))[:1], places([-1], [-1], [-1]))


def test_the_sequence_is_let_go_if_nothing_was_asked() -> None:
    views: list[View] = []
    sequences: list[weakref.ref[Tensor]] = []

    def ask(view: View) -> None:
        keys: Any = view.keys
        views.append(view)
        sequences.append(weakref.ref(keys.__self__._upcoming.states))
        assert keys.__self__._foreseen is None

    entry = ZOO["llava"]
    run(built("llava"), Watch(blocks_watched=(1, 3), ask=ask), entry, entry.inputs("ragged"))
    gc.collect()
    assert len(sequences) == 2
    assert all(reference() is None for reference in sequences)
    with pytest.raises(tc.InputError, match="no longer about to run"):
        views[1].keys(3)
    with pytest.raises(tc.InputError, match="its pass is over"):
        views[1].keys(1)


def test_what_cannot_be_looked_ahead_at_is_refused() -> None:
    nobody, blocks = places([-1], [-1], [-1]), decoder_blocks(built("llava"))
    assert "at least one" in refused(lambda view: view.ahead([], nobody))
    linear = [nn.Linear(2, 2), *blocks[:1]]
    assert "look-ahead layer 0 cannot" in refused(lambda view: view.ahead(linear, nobody))
    assert "is padding" in refused(lambda view: view.ahead(blocks[:1], places([0], [0], [0])))
    assert "shape (1, 1)" in refused(lambda view: view.ahead(blocks[:1], places([3])))

    def ask_for_later(view: View) -> None:
        view.attention(3, nobody)

    assert "has not run yet" in refused(ask_for_later, blocks_watched=(3,))


def test_looking_ahead_over_a_kept_cache_is_refused() -> None:
    entry, model = ZOO["llava"], built("llava")
    first, second, both = second_turn(entry)
    method = LookAhead(blocks_ahead=tuple(decoder_blocks(model)[3:4]), before=1)
    past = dynamic(model)
    with torch.no_grad(), tc.prune(model, method, prompt=torch.ones(1, 1, dtype=torch.bool)):
        method.asks.append(asked(first, entry.user_words(first), entry.visual(first)))
        model(**first, past_key_values=past, use_cache=True)
        method.asks.append(asked(second, entry.user_words(second), entry.visual(second)))
        turn = {**second, "attention_mask": both["attention_mask"]}
        with pytest.raises(tc.InputError, match="chat of several turns over a kept cache"):
            model(**turn, past_key_values=past, use_cache=True)


def test_a_block_of_another_make_cannot_be_foreseen() -> None:
    entry = ZOO["llava"]
    model = entry.build()
    block: Any = decoder_blocks(model)[1]
    block.self_attn.q_norm = nn.LayerNorm(5)
    with pytest.raises(tc.InputError, match="q_norm has width 5"):
        run(model, Foresee(stages=(1,), blocks_watched=(1,)), entry, entry.inputs("ragged"))
    block.input_layernorm = None
    with pytest.raises(tc.InputError, match="no input_layernorm"):
        run(model, Foresee(stages=(1,), blocks_watched=(1,)), entry, entry.inputs("ragged"))


def test_norms_over_all_heads_at_once() -> None:
    """OLMo's way; heads are split only after the norm."""
    entry = ZOO["llava"]
    model, inputs = entry.build(), entry.inputs("ragged")
    attention: Any = decoder_blocks(model)[1].self_attn
    method = Foresee(stages=(1,), blocks_watched=(1,))
    run(model, method, entry, inputs)
    width = attention.k_proj.out_features
    norm = nn.LayerNorm(width, elementwise_affine=True)
    nn.init.normal_(norm.weight)
    attention.k_norm = norm
    changed = Foresee(stages=(1,), blocks_watched=(1,))
    run(model, changed, entry, inputs)
    before, after = (each.seen[0].keys.transpose(1, 2).flatten(2) for each in (method, changed))
    real = method.seen[0].view.mask
    torch.testing.assert_close(after[real], norm(before[real]).detach(), **CLOSE)


def test_training_with_checkpointing_foresees_the_same_twice() -> None:
    """When blocks run again in backward, what the first run recorded is from after the drop.

    Since transformers 5.23 our hooks are outside of what runs again.
    """
    runs = 1 if read_version(transformers.__version__) >= (5, 23) else 2
    entry = ZOO["qwen3_vl"]
    model: Any = entry.build().train()
    inputs = entry.inputs("ragged")
    words = entry.user_words(inputs)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    method = Foresee(merges=True, blocks_watched=(1, 3))
    method.asks.append(asked(inputs, words, entry.visual(inputs)))
    labels = inputs["input_ids"].masked_fill(~words, -100)
    with tc.prune(model, method, prompt=words):
        model(**inputs, labels=labels).loss.backward()
    seen = sorted(method.seen, key=lambda each: (each.before, each.block))
    assert [(each.before, each.block) for each in seen[::runs]] == [(1, 1), (3, 1), (3, 3)]
    for one, other in zip(seen[::runs], seen[runs - 1 :: runs], strict=True):
        assert not one.rows.requires_grad
        torch.testing.assert_close(one.rows, other.rows, **CLOSE)
        torch.testing.assert_close(one.keys, other.keys, **CLOSE)


def looked(model: Any, called: Any, entry: ZooEntry) -> list[Seen]:
    """All ways of looking, through a model that may be called by way of another."""
    inputs, blocks = entry.inputs("ragged"), decoder_blocks(model)
    words = entry.user_words(inputs)
    queries = asked(inputs, words, entry.visual(inputs))
    found = []

    def ask(view: View) -> None:
        rows = view.ahead(blocks[2:4], queries)
        found.append(Seen(view.layer_idx, 3, view, torch.empty(0), rows))
        for block in (0, 2):
            rows = view.attention(block, queries)
            found.append(Seen(view.layer_idx, block, view, view.keys(block), rows))

    method = Watch(stages=(2,), blocks_watched=(0, 2), ask=ask)
    with torch.no_grad(), tc.prune(model, method, prompt=words):
        called(**inputs, use_cache=False)
    return found


def test_torch_compile_sees_the_same() -> None:
    entry = ZOO["llava"]
    model = entry.build(layers=4)
    plain = looked(model, model, entry)
    compiled = looked(model, torch.compile(model, backend="eager"), entry)
    for one, other in zip(plain, compiled, strict=True):
        torch.testing.assert_close(one.rows, other.rows, **CLOSE)
        torch.testing.assert_close(one.keys, other.keys, **CLOSE)


def test_offloaded_layers_are_fetched() -> None:
    from accelerate import cpu_offload

    entry = ZOO["qwen3_vl"]
    model = entry.build()
    plain = looked(model, model, entry)
    cpu_offload(model, execution_device=torch.device("cpu"))
    for one, other in zip(plain, looked(model, model, entry), strict=True):
        torch.testing.assert_close(one.rows, other.rows, **CLOSE)
        torch.testing.assert_close(one.keys, other.keys, **CLOSE)
