"""Keys and attention rows, compared with eager attention maps."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, StaticCache

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import BUDGET, DISTINCT, built, with_media
from tests.pruning.test_prune import fingerprint
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule, decoder_blocks
from tokencover.methods import Choice, View
from tokencover.pruning.attention.layer_attention import Past, read_cached_keys
from tokencover.pruning.passes import pack_left

STAGES, WATCHED = (1, 3), (0, 2)
CLOSE: dict[str, Any] = {"atol": 1e-5, "rtol": 0}


@dataclass(frozen=True)
class Seen:
    """What a method saw of one block before another."""

    before: int
    block: int
    view: View
    keys: Tensor
    rows: Tensor


@dataclass(frozen=True)
class Watch(KeepRandom):
    """Looks at every watched block that has run, then keeps random tokens."""

    budget: int | None = BUDGET
    stages: tuple[int, ...] = STAGES
    blocks_watched: tuple[int, ...] = WATCHED
    asks: list[Tensor] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    ask: Callable[[View], None] | None = None

    @property
    def queries(self) -> Tensor:
        return self.asks[-1]

    def watched_layers(self, num_layers: int) -> Sequence[int]:
        return self.blocks_watched

    def choose(self, view: View) -> Choice:
        if self.ask is not None:
            self.ask(view)
        else:
            for block in self.blocks_watched:
                if block < view.layer_idx:
                    rows = view.attention(block, self.queries)
                    self.seen.append(Seen(view.layer_idx, block, view, view.keys(block), rows))
        return super().choose(view)


@dataclass(frozen=True)
class Truth:
    """What eager attention did in a block: weights ``(b, h, s, s)`` and states that came in."""

    weights: Tensor
    states: Tensor


@contextmanager
def eavesdropping(model: PreTrainedModel) -> Iterator[dict[int, Truth]]:
    found: dict[int, Truth] = {}
    states: dict[int, Tensor] = {}
    handles = []
    for number, block in enumerate(decoder_blocks(model)):

        def came(_: nn.Module, args: Any, number: int = number) -> None:
            states[number] = args[0]

        def went(_: nn.Module, args: Any, output: Any, number: int = number) -> None:
            found[number] = Truth(output[1], states[number])

        handles.append(block.register_forward_pre_hook(came))
        handles.append(block.get_submodule("self_attn").register_forward_hook(went))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def keys_of(block: Any, states: Tensor) -> Tensor:
    """Keys ``(b, s, kv_heads, head_dim)`` of a block, not rotated, written out by hand."""
    attention = block.self_attn
    keys = attention.k_proj(block.input_layernorm(states))
    keys = keys.view(*states.shape[:2], -1, attention.head_dim)
    found: Tensor = attention.k_norm(keys) if hasattr(attention, "k_norm") else keys
    return found


def asked(inputs: Inputs, words: Tensor, visual: Tensor) -> Tensor:
    """The last word first, then all words; -1 after them."""
    index, mask = pack_left(words[visual.any(-1)])
    places = index.masked_fill(~mask, -1)
    return torch.cat([places.max(-1, keepdim=True).values, places], 1)


def watch(
    model: PreTrainedModel, inputs: Inputs, words: Tensor, visual: Tensor, **settings: Any
) -> Watch:
    method = Watch(asks=[asked(inputs, words, visual)], **settings)
    with torch.no_grad(), tc.prune(model, method, prompt=words):
        model(**inputs)
    return method


def assert_true(
    method: Watch, truth: dict[int, Truth], model: PreTrainedModel, visual: Tensor
) -> None:
    samples = visual.any(-1).nonzero().squeeze(-1).tolist()
    for seen in method.seen:
        block: Any = decoder_blocks(model)[seen.block]
        with torch.no_grad():
            keys = keys_of(block, truth[seen.block].states)
        heads = block.self_attn.num_key_value_groups * keys.shape[2]
        shown, count = seen.view.mask.shape
        assert seen.keys.shape == (shown, *keys.shape[2:3], count, keys.shape[3])
        assert seen.rows.shape == (shown, heads, method.queries.shape[1], count)
        assert seen.rows.sum(-1).max() <= 1 + 1e-6
        for row, sample in enumerate(samples):
            there, places = seen.view.mask[row], seen.view.positions[row, seen.view.mask[row]]
            expected = keys[sample, places].transpose(0, 1)
            torch.testing.assert_close(seen.keys[row][:, there], expected, **CLOSE)
            real = method.queries[row] >= 0
            rows = truth[seen.block].weights[sample][:, method.queries[row, real]][..., places]
            torch.testing.assert_close(seen.rows[row][:, real][..., there], rows, **CLOSE)
            assert rows.max() > 0.02
            assert not seen.rows[row][..., ~there].any()
            assert not seen.rows[row][:, ~real].any()
            assert not seen.keys[row][:, ~there].any()


@pytest.mark.parametrize(("side", "attention"), [("left", "sdpa"), ("right", "eager")])
@pytest.mark.parametrize("entry", DISTINCT)
def test_rows_and_keys_are_those_of_eager_attention(
    entry: ZooEntry, side: Side, attention: str
) -> None:
    eager = built(entry.name, "eager")
    for kind in with_media(entry):
        inputs = entry.inputs(kind, side)
        words, visual = entry.user_words(inputs), entry.visual(inputs)
        method = watch(built(entry.name, attention), inputs, words, visual)
        assert [(seen.before, seen.block) for seen in method.seen] == [(1, 0), (3, 0), (3, 2)]
        with eavesdropping(eager) as truth:
            blocked_forward_schedule(eager, inputs, dropped_by(method, inputs, visual))
        assert_true(method, truth, eager, visual)


@pytest.mark.parametrize("entry", DISTINCT)
def test_before_any_pruning_the_maps_of_the_plain_model(entry: ZooEntry) -> None:
    eager = built(entry.name, "eager")
    inputs = entry.inputs("ragged")
    words, visual = entry.user_words(inputs), entry.visual(inputs)
    method = watch(built(entry.name), inputs, words, visual)
    with torch.no_grad(), eavesdropping(eager) as truth:
        eager(**inputs)
    method.seen[1:] = []
    assert_true(method, truth, eager, visual)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", DISTINCT)
def test_a_batch_equals_the_single_runs(entry: ZooEntry, side: Side) -> None:
    model = built(entry.name)
    inputs = entry.inputs("ragged", side)
    together = watch(model, inputs, entry.user_words(inputs), entry.visual(inputs))
    for row, sample in enumerate(entry.samples("ragged")):
        alone = entry.collate([sample])
        single = watch(model, alone, entry.user_words(alone), entry.visual(alone))
        for both, one in zip(together.seen, single.seen, strict=True):
            _, _, queries, tokens = one.rows.shape
            torch.testing.assert_close(both.keys[row, :, :tokens], one.keys[0], **CLOSE)
            rows = both.rows[row, :, :queries, :tokens]
            torch.testing.assert_close(rows, one.rows[0], **CLOSE)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_of_families(name: str) -> None:
    """Other text stacks: rotation of pairs or of some dimensions, norms, experts."""
    variant, model = VARIANTS[name], VARIANTS[name].build()
    visual = torch.isin(variant.inputs["input_ids"], torch.tensor([11, 12]))
    words = variant.inputs["attention_mask"].bool() & ~visual
    settings: dict[str, Any] = {"stages": (1,), "blocks_watched": (0,)}
    method = watch(model, variant.inputs, words, visual, **settings)
    model.set_attn_implementation("eager")
    with torch.no_grad(), eavesdropping(model) as truth:
        model(**variant.inputs)
    assert_true(method, truth, model, visual)


@pytest.mark.parametrize("entry", DISTINCT)
def test_nothing_is_left_behind(entry: ZooEntry) -> None:
    model: Any = built(entry.name)
    inputs = entry.inputs("ragged")
    words, visual = entry.user_words(inputs), entry.visual(inputs)
    with torch.no_grad():
        plain = model(**inputs).logits
        before = fingerprint(model)
        method = Watch(asks=[asked(inputs, words, visual)])
        with tc.prune(model, method, prompt=words):
            model.generate(**inputs, max_new_tokens=3)
        assert len(method.seen) == 3  # decoding steps are not recorded
        assert fingerprint(model) == before
        assert torch.equal(model(**inputs).logits, plain)


def parts_of(view: View) -> list[weakref.ref[Tensor]]:
    keys: Any = view.keys
    recorded = keys.__self__._current.recorded.values()
    assert recorded
    found = [tensor for each in recorded for tensor in each.projections.values()]
    return [weakref.ref(tensor) for tensor in found]


@pytest.mark.parametrize("stumbles", [False, True])
def test_what_was_recorded_is_freed(stumbles: bool) -> None:
    entry = ZOO["llava"]
    model, inputs = built("llava"), entry.inputs("ragged")
    references: list[weakref.ref[Tensor]] = []
    views: list[View] = []

    def ask(view: View) -> None:
        views.append(view)
        references.extend(parts_of(view))
        if stumbles:
            raise RuntimeError("stumbled")

    with torch.no_grad(), tc.prune(model, Watch(ask=ask), prompt=entry.user_words(inputs)):
        if stumbles:
            with pytest.raises(RuntimeError, match="stumbled"):
                model(**inputs)
        else:
            model(**inputs)
        gc.collect()
        assert references
        assert all(reference() is None for reference in references)
        with pytest.raises(tc.InputError, match="its pass is over"):
            views[0].keys(0)


def second_turn(entry: ZooEntry) -> tuple[Inputs, Inputs, Inputs]:
    """A prompt with an image, another that follows, and both in one."""
    first, second = (entry.collate(entry.samples(kind)[-1:]) for kind in ("single", "mixed"))
    both = {name: torch.cat([first[name], second[name]], -1) for name in ("input_ids",)}
    both["attention_mask"] = torch.ones_like(both["input_ids"])
    rest = [name for name in first if name not in both]
    return (
        first,
        second,
        {**both, **{name: torch.cat([first[name], second[name]]) for name in rest}},
    )


def dynamic(model: PreTrainedModel) -> Any:
    return DynamicCache()


def static(model: PreTrainedModel) -> Any:
    return StaticCache(model.config.get_text_config(), max_cache_len=160)


@pytest.mark.parametrize("stages", [STAGES, (0, 3)])
@pytest.mark.parametrize("cache", [dynamic, static])
@pytest.mark.parametrize("entry", [ZOO["llava"], ZOO["internvl"]], ids=["llava", "internvl"])
def test_rows_over_a_kept_cache(
    entry: ZooEntry, cache: Callable[[PreTrainedModel], Any], stages: tuple[int, ...]
) -> None:
    model, eager = built(entry.name), built(entry.name, "eager")
    first, second, both = second_turn(entry)
    start = first["input_ids"].shape[1]
    past, ones = cache(model), torch.ones_like(both["input_ids"])
    method = Watch(stages=stages)
    anything = torch.ones(1, 1, dtype=torch.bool)
    with torch.no_grad(), tc.prune(model, method, prompt=anything):
        for inputs, mask in ((first, ones[:, :start]), (second, ones)):
            method.seen.clear()
            method.asks.append(asked(inputs, entry.user_words(inputs), entry.visual(inputs)))
            turn = {**inputs, "attention_mask": mask}
            model(**turn, past_key_values=past, use_cache=True)
    parts = [dropped_by(method, each, entry.visual(each)) for each in (first, second)]
    gone = {stage: torch.cat([part[stage] for part in parts], 1) for stage in stages}
    with eavesdropping(eager) as truth:
        blocked_forward_schedule(eager, both, gone)
    cut = {
        block: Truth(each.weights[:, :, start:, start:], each.states[:, start:])
        for block, each in truth.items()
    }
    assert_true(method, cut, eager, entry.visual(second))
    assert truth[0].weights[0, :, -1, :start].sum() > 0.05


def refused(ask: Callable[[View], Any], **settings: Any) -> str:
    entry = ZOO["llava"]
    inputs = entry.inputs("ragged")

    def only(view: View) -> None:
        ask(view)

    method = Watch(ask=only, **settings)
    with (
        torch.no_grad(),
        tc.prune(built("llava"), method, prompt=entry.user_words(inputs)),
        pytest.raises(tc.InputError) as error,
    ):
        built("llava")(**inputs)
    return str(error.value)


def places(*rows: Sequence[int]) -> Tensor:
    return torch.tensor(rows)


def first_dropped(view: View) -> int:
    """The place of a visual token of the first sample that is gone by now."""
    gone = set(range(int(view.positions[0, 0]), int(view.positions[0, BUDGET - 1]) + 1))
    return min(gone - set(view.positions[0].tolist()))


def ask_for_dropped(view: View) -> None:
    if view.layer_idx == 3:
        first = first_dropped(view)
        assert view.attention(0, places([first], [-1], [-1])).shape == (3, 4, 1, BUDGET)
        view.attention(2, places([first], [-1], [-1]))


def test_what_cannot_be_asked_is_refused() -> None:
    last = ZOO["llava"].inputs("ragged")["input_ids"].shape[1] - 1
    assert "not watched" in refused(lambda view: view.keys(1))
    assert "watched_layers" in refused(lambda view: view.attention(1, places([last] * 3)))
    assert "has not run yet" in refused(lambda view: view.keys(2))
    assert "shape (1, 1)" in refused(lambda view: view.attention(0, places([last])))
    assert "float32" in refused(lambda view: view.attention(0, torch.ones(3, 1)))
    beyond = places([last + 1], [last], [last])
    assert f"to {last + 1}" in refused(lambda view: view.attention(0, beyond))
    assert "is padding" in refused(lambda view: view.attention(0, places([0], [0], [0])))
    assert "was dropped before layer 2" in refused(ask_for_dropped)


@pytest.mark.parametrize("blocks", [(4,), (-1,), (0, 9)])
def test_blocks_that_run_too_late_cannot_be_watched(blocks: tuple[int, ...]) -> None:
    model = built("llava")
    before = fingerprint(model)
    with pytest.raises(tc.InputError, match="only if it runs before the last"):
        tc.prune(model, Watch(blocks_watched=blocks))
    assert fingerprint(model) == before


def test_attention_of_another_make_is_refused() -> None:
    model = ZOO["llava"].build()
    attention: Any = decoder_blocks(model)[0].self_attn
    attention.gate = nn.Linear(2, 2)
    with pytest.raises(tc.InputError, match=r"LlamaAttention has parts .*: gate"):
        tc.prune(model, Watch())
    del attention.gate
    attention.sinks = nn.Parameter(torch.zeros(4))
    with pytest.raises(tc.InputError, match="weights besides its projections: sinks"):
        tc.prune(model, Watch())
    del attention.sinks, attention.q_proj
    with pytest.raises(tc.InputError, match="no self_attn with q_proj"):
        tc.prune(model, Watch())


def gradients(
    model: PreTrainedModel, inputs: Inputs, words: Tensor, visual: Tensor
) -> list[Tensor]:
    model.zero_grad()
    labels = inputs["input_ids"].masked_fill(~words, -100)
    method = Watch(asks=[asked(inputs, words, visual)], merges=True)
    with tc.prune(model, method, prompt=words) as run:
        model(**inputs, labels=labels).loss.backward()
        assert not any(seen.rows.requires_grad or seen.keys.requires_grad for seen in method.seen)
        method.seen.clear()  # their states hold the graph
        gc.collect()
        known = [each.run for passes in run._rerun._passes.values() for each in passes]
        assert not any(getattr(each, "recorded", None) for each in known)
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_training_with_and_without_checkpointing() -> None:
    entry = ZOO["qwen3_vl"]
    model: Any = entry.build()
    inputs = entry.inputs("ragged")
    model.train()
    words, visual = entry.user_words(inputs), entry.visual(inputs)
    plain = gradients(model, inputs, words, visual)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for one, other in zip(plain, gradients(model, inputs, words, visual), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-3)


def test_half_precision_gives_rows_in_single() -> None:
    entry = ZOO["llava"]
    inputs = entry.inputs("ragged")
    halves = {k: v.bfloat16() if v.is_floating_point() else v for k, v in inputs.items()}
    words, visual = entry.user_words(inputs), entry.visual(inputs)
    method = watch(entry.build(dtype=torch.bfloat16), halves, words, visual)
    exact = watch(built("llava"), inputs, words, visual)
    assert method.seen[0].rows.dtype == torch.float32
    assert method.seen[0].keys.dtype == torch.bfloat16
    torch.testing.assert_close(method.seen[0].rows, exact.seen[0].rows, atol=0.03, rtol=0)


def test_layers_on_several_devices() -> None:
    from accelerate import cpu_offload

    entry = ZOO["llava"]
    model, inputs = entry.build(), entry.inputs("ragged")
    words, visual = entry.user_words(inputs), entry.visual(inputs)
    plain = watch(model, inputs, words, visual)
    cpu_offload(model, execution_device=torch.device("cpu"))
    before = fingerprint(model)
    moved = watch(model, inputs, words, visual)
    assert fingerprint(model) == before
    for one, other in zip(plain.seen, moved.seen, strict=True):
        torch.testing.assert_close(one.rows, other.rows, **CLOSE)
        torch.testing.assert_close(one.keys, other.keys, **CLOSE)


@pytest.mark.parametrize(("length", "readable"), [(8, False), (7, True)])
def test_cached_keys_that_cannot_be_read_are_refused(length: int, readable: bool) -> None:
    """An offloaded cache has them elsewhere, a quantized one keeps only the latest."""
    layer = DynamicCache().layer_class_to_replicate
    assert layer is not None
    kept: Any = layer()
    kept.keys = torch.zeros(1, 2, length, 4)
    with pytest.raises(tc.InputError, match="5 cached tokens whose keys cannot be read"):
        read_cached_keys("block 0", Past(kept, 5, None, readable), new=3)
