"""Calls in any order: prompts, turns, copies of caches, beams, methods switched, errors.

Hypothesis makes up sequences of calls on one model. After every call the logits are held to the
oracle, which computes the whole text so far again on a second model that is never pruned.

``TOKENCOVER_SEQUENCES=2000 pytest -s -n0 tests/pruning/test_call_sequences.py`` runs more of them,
other ones each time, and prints how many there were.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

import tokencover as tc
from tests.pruning.random_method import KeepRandom, dropped_by
from tests.pruning.test_matrix import NEVER, built, generate
from tests.pruning.test_prune import fingerprint
from tests.zoo import SIDES, ZOO
from tests.zoo.entry import Inputs, Medium, Sample, Side, ZooEntry
from tests.zoo.oracle import blocked_forward_schedule, decoder_blocks
from tokencover.methods import Choice, Method, View

ASKED = os.environ.get("TOKENCOVER_SEQUENCES")
SEQUENCES = int(ASKED or 30)
STEPS = 12
FEW_CHATS = 4
DEPTH = 5
KINDS = ("single", "ragged", "two_images", "mixed", "text_only")
FAMILIES = ("llava", "qwen2_vl")
TOLERANCE = 2e-5


class StumbleError(Exception):
    """Thrown inside a pass."""


@dataclass(frozen=True)
class KeepSome(KeepRandom):
    """Reads no prompt, and fails on demand."""

    reads_prompt = False
    stumbles: ClassVar[list[None]] = []

    def choose(self, view: View) -> Choice:
        if self.stumbles:
            raise StumbleError
        return super().choose(view)


METHODS: tuple[Method, ...] = (
    *(KeepSome(7, stages) for stages in ((0,), (1,), (3,), (0, 2), (1, 3))),
    KeepSome(4, (1,)),
    KeepSome(None, (1,)),
    KeepSome(16, (0, 2)),  # more than some images have
    tc.FastV(7, after=1),
    tc.DART(7, positions="original"),
    tc.DivPrune(7, positions="original"),
)

methods = st.sampled_from(METHODS)
kinds = st.sampled_from(KINDS)
pictured = st.sampled_from([kind for kind in KINDS if kind != "text_only"])
chosen = st.integers(0, FEW_CHATS - 1)
word = st.integers(24, 79)
fitting = st.sampled_from([True, True, False])
"""Whether to enter the pruning of a chat before going on with it."""


@dataclass(eq=False)
class Chat:
    """A text so far, of several rows, with the cache that holds it."""

    ids: Tensor
    mask: Tensor
    media: list[tuple[Medium, ...]]
    gone: dict[int, Tensor] = field(default_factory=dict)
    cache: Any = None
    pruned_at: tuple[int, ...] | None = None
    """Where tokens were dropped; None if none were."""

    @property
    def length(self) -> int:
        return self.ids.shape[1]

    def inputs(self, entry: ZooEntry) -> Inputs:
        text = {"input_ids": self.ids, "attention_mask": self.mask}
        return {**text, **entry.pack([Sample((), media) for media in self.media], text)}

    def append(self, ids: Tensor, gone: dict[int, Tensor] | None = None) -> None:
        """Continue with more text, of which some is dropped."""
        self.ids = torch.cat([self.ids, ids], 1)
        self.mask = torch.cat([self.mask, torch.ones_like(ids)], 1)
        nothing = torch.zeros_like(ids, dtype=torch.bool)
        stages = {*self.gone, *(gone or {})}
        before = torch.zeros(len(ids), self.length - ids.shape[1], dtype=torch.bool)
        self.gone = {
            stage: torch.cat([self.gone.get(stage, before), (gone or {}).get(stage, nothing)], 1)
            for stage in stages
        }

    def shorten(self, count: int) -> None:
        end = self.length - count
        self.ids, self.mask = self.ids[:, :end], self.mask[:, :end]
        self.gone = {stage: gone[:, :end] for stage, gone in self.gone.items()}

    def take_rows(self, rows: Tensor) -> None:
        self.ids, self.mask = self.ids[rows], self.mask[rows]
        self.media = [self.media[row] for row in rows.tolist()]
        self.gone = {stage: gone[rows] for stage, gone in self.gone.items()}

    def fork(self) -> Chat:
        return replace(self, media=list(self.media), cache=copy.deepcopy(self.cache))


class CallSequences(RuleBasedStateMachine):
    """One model, called in any order; see the module."""

    family: ClassVar[str]
    ran: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.entry = ZOO[self.family]
        self.model: Any = built(self.family)
        self.oracle = get_oracle(self.family)
        self.call(self.entry.inputs("single"))  # transformers puts hooks of its own there once
        self.before = fingerprint(self.model)
        self.run: Any = None
        self.method: Any = None
        self.chats: list[Chat] = []
        self.ran["sequences"] += 1

    def teardown(self) -> None:
        if self.run is not None:
            self.run.remove()
        assert fingerprint(self.model) == self.before

    @initialize(method=methods, kind=kinds)
    def begin(self, method: Method, kind: str) -> None:
        """Most calls continue a prompt, so there is one from the beginning."""
        self.enter(method)
        self.read_prompt(kind, "left")

    @invariant()
    def caches_are_as_long_as_their_texts(self) -> None:
        self.ran["steps"] += 1
        for chat in self.chats:
            assert chat.cache.get_seq_length() == chat.length

    # ---- coming and going -------------------------------------------------------------------

    def enter(self, method: Method) -> None:
        self.run, self.method = tc.prune(self.model, method), method

    @precondition(lambda self: self.run is None)
    @rule(method=methods)
    def enter_with(self, method: Method) -> None:
        self.enter(method)

    @precondition(lambda self: self.run is not None)
    @rule()
    def remove(self) -> None:
        self.run.remove()
        self.run = self.method = None
        assert fingerprint(self.model) == self.before

    @precondition(lambda self: self.run is not None)
    @rule(method=methods)
    def switch_method(self, method: Method) -> None:
        self.remove()
        self.enter(method)

    @precondition(lambda self: self.run is not None)
    @rule()
    def leave_by_an_error(self) -> None:
        with pytest.raises(StumbleError), self.run:
            raise StumbleError
        self.run = self.method = None
        assert fingerprint(self.model) == self.before

    # ---- prompts ----------------------------------------------------------------------------

    @rule(kind=kinds, side=st.sampled_from(SIDES))
    def read_prompt(self, kind: str, side: Side) -> None:
        chat = self.start(kind, side)
        chat.cache = DynamicCache()
        inputs = {**chat.inputs(self.entry), **self.build_positions(chat, chat.length)}
        found = self.call(inputs, use_cache=True, past_key_values=chat.cache)
        self.note(chat, self.list_dropped(chat))
        self.compare(chat, found)
        if side == "left":
            self.keep(chat)

    @precondition(lambda self: self.chats)
    @rule(which=chosen)
    def read_everything_again(self, which: int) -> None:
        """The whole text, all images at once, without a cache."""
        old = self.pick(which)
        chat = Chat(old.ids, old.mask, old.media)
        found = self.call(chat.inputs(self.entry), use_cache=False)
        self.note(chat, self.list_dropped(chat))
        self.compare(chat, found)

    @rule(kind=pictured, cached=st.booleans())
    def generate_from_a_prompt(self, kind: str, cached: bool) -> None:
        chat = self.start(kind, "left")
        found = self.generate(chat.inputs(self.entry), use_cache=cached)
        self.note(chat, self.list_dropped(chat))
        self.compare_words(chat, found)
        if cached:
            chat.cache = found.past_key_values
            self.keep(chat)

    @rule(kind=kinds, beams=st.sampled_from([2, 3]), cached=st.booleans())
    def search_with_beams(self, kind: str, beams: int, cached: bool) -> None:
        chat = self.start(kind, "left")
        found = self.generate(
            chat.inputs(self.entry), num_beams=beams, use_cache=cached, output_logits=False
        )
        self.note(chat, self.list_dropped(chat, beams))
        words = found.sequences[:, chat.length :]
        chat.append(words[:, :-1])
        logits = self.expect(chat)[:, -words.shape[1] :]
        each = logits.log_softmax(-1).gather(-1, words.unsqueeze(-1)).squeeze(-1)
        close(found.sequences_scores, each.mean(-1))

    # ---- going on ---------------------------------------------------------------------------

    @precondition(lambda self: self.chats)
    @rule(which=chosen, fits=fitting, words=st.lists(word, min_size=1, max_size=3))
    def go_on(self, which: int, fits: bool, words: list[int]) -> None:
        """One call for some new words."""
        chat = self.pick(which, fits)
        ids = torch.tensor(words).repeat(len(chat.ids), 1)
        with self.refusal(chat) as refused:
            found = self.read_more(chat, ids)
        if not refused:
            chat.append(ids)
            self.compare(chat, found)

    @precondition(lambda self: self.chats)
    @rule(which=chosen, fits=fitting, question=st.lists(word, min_size=1, max_size=3))
    def generate_on(self, which: int, fits: bool, question: list[int]) -> None:
        """A further turn by generate, over the cache."""
        chat = self.pick(which, fits)
        ids = torch.tensor(question).repeat(len(chat.ids), 1)
        longer = replace(chat)
        longer.append(ids)
        inputs = {
            name: value
            for name, value in longer.inputs(self.entry).items()
            if name in ("input_ids", "attention_mask", "mm_token_type_ids")
        }
        # transformers keeps these on the model, where another chat overwrites them
        self.model.model.rope_deltas = self.compute_positions(chat)[1]
        with self.refusal(chat) as refused:
            found = self.generate(inputs, past_key_values=chat.cache)
        if not refused:
            chat.append(ids)
            self.compare_words(chat, found)

    @precondition(lambda self: self.chats)
    @rule(which=chosen, fits=fitting, seed=st.integers(0, 3))
    def show_another_picture(self, which: int, fits: bool, seed: int) -> None:
        """A further turn that brings an image to each row."""
        chat = self.pick(which, fits)
        sample = self.entry.samples("two_images" if seed == 3 else "single")[0]
        turn = Chat(
            torch.tensor(sample.ids).repeat(len(chat.ids), 1),
            torch.ones(len(chat.ids), len(sample.ids), dtype=torch.int64),
            [sample.repainted(token=row + seed).media for row in range(len(chat.ids))],
        )
        whole = replace(chat, media=[a + b for a, b in zip(chat.media, turn.media, strict=True)])
        whole.append(turn.ids)
        with self.refusal(chat) as refused:
            found = self.read_more(chat, turn.ids, whole, turn.inputs(self.entry))
        if not refused:
            gone = self.list_dropped(turn)
            chat.media = whole.media
            chat.append(turn.ids, gone)
            self.note(chat, {})
            self.compare(chat, found)

    # ---- caches -----------------------------------------------------------------------------

    @precondition(lambda self: self.chats)
    @rule(which=chosen)
    def copy_a_cache(self, which: int) -> None:
        self.keep(self.pick(which).fork())

    @precondition(lambda self: self.chats)
    @rule(which=chosen, count=st.integers(1, 4), negative=st.booleans())
    def crop(self, which: int, count: int, negative: bool) -> None:
        chat = self.pick(which)
        left = chat.length - count
        padding = int((chat.mask == 0).sum(-1).max())
        if left < compute_end(*chat.gone.values()):
            with pytest.raises(tc.InputError, match="crop"):
                chat.cache.crop(-count if negative else left)
        elif left > padding + 4 and left > compute_end(self.entry.visual({"input_ids": chat.ids})):
            # transformers takes negative numbers only
            chat.cache.crop(-count if negative or chat.pruned_at is None else left)
            chat.shorten(count)

    @precondition(lambda self: self.chats)
    @rule(which=chosen, seed=st.integers(0, 5), way=st.sampled_from(["order", "some", "twice"]))
    def arrange_rows(self, which: int, seed: int, way: str) -> None:
        chat = self.pick(which)
        count = len(chat.ids)
        rows = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        if way == "order":
            chat.cache.reorder_cache(rows)
        elif way == "some":
            rows = rows[: max(1, count - 1)]
            chat.cache.batch_select_indices(rows)
        elif count <= 3:
            rows = torch.arange(count).repeat_interleave(2)
            chat.cache.batch_repeat_interleave(2)
        else:
            return
        chat.take_rows(rows)

    # ---- errors -----------------------------------------------------------------------------

    @rule(kind=pictured, place=st.integers(-3, DEPTH - 1))
    def stumble_in_a_prompt(self, kind: str, place: int) -> None:
        chat = self.start(kind, "left")
        inside = place != -3 or isinstance(self.method, KeepSome)
        with stumble(self.model, place), pytest.raises(StumbleError) if inside else nullcontext():
            self.call(chat.inputs(self.entry), use_cache=True)

    @precondition(lambda self: self.chats)
    @rule(which=chosen, place=st.integers(0, DEPTH - 1))
    def stumble_in_a_step(self, which: int, place: int) -> None:
        """The cache is half filled then, with transformers alone too: the chat is over."""
        chat = self.pick(which)
        with self.refusal(chat) as refused, stumble(self.model, place):
            with pytest.raises((StumbleError, tc.InputError)) as raised:
                self.read_more(chat, torch.full((len(chat.ids), 1), 40))
            if raised.type is tc.InputError:
                raise raised.value
        if not refused:
            self.chats.remove(chat)

    # ---- helpers ----------------------------------------------------------------------------

    def pick(self, which: int, fits: bool = False) -> Chat:
        """One of the chats; if `fits`, the model is pruned as it was for that one."""
        chat = self.chats[which % len(self.chats)]
        stages = None if self.method is None else tuple(self.method.pruning_layers(DEPTH))
        if fits and chat.pruned_at not in (None, stages):
            if self.run is not None:
                self.remove()
            self.enter(
                next(
                    each for each in METHODS if tuple(each.pruning_layers(DEPTH)) == chat.pruned_at
                )
            )
        return chat

    def keep(self, chat: Chat) -> None:
        self.chats = [*self.chats, chat][-FEW_CHATS:]

    def start(self, kind: str, side: Side) -> Chat:
        inputs = self.entry.inputs(kind, side)
        media = [sample.media for sample in self.entry.samples(kind)]
        return Chat(inputs["input_ids"], inputs["attention_mask"], media)

    def call(self, inputs: Inputs, **options: Any) -> Tensor:
        with torch.no_grad():
            found: Tensor = self.model(**inputs, **options).logits
        return found

    def generate(self, inputs: Inputs, **options: Any) -> Any:
        given = {"output_logits": True, **options}
        return generate(
            self.model, inputs, max_new_tokens=3, do_sample=False, eos_token_id=NEVER,
            return_dict_in_generate=True, output_scores=True, **given,
        )  # fmt: skip

    def read_more(
        self, chat: Chat, ids: Tensor, whole: Chat | None = None, inputs: Inputs | None = None
    ) -> Tensor:
        """Call the model for new columns over the cache of a chat."""
        if whole is None:
            whole = replace(chat)
            whole.append(ids)
        given: dict[str, Any] = {**(inputs or {"input_ids": ids}), "attention_mask": whole.mask}
        given.update(self.build_positions(whole, ids.shape[1]))
        return self.call(given, past_key_values=chat.cache, use_cache=True)

    def build_positions(self, chat: Chat, count: int) -> Inputs:
        """Positions of the newest tokens as `generate` numbers them, where forward would not."""
        text_alone = not any(chat.media) or self.family == "llava"
        # What the Qwens keep to number new tokens is another chat's by now.
        goes_on = count < chat.length and self.family != "llava"
        if goes_on or (text_alone and not bool(chat.mask.all())):
            return {"position_ids": self.compute_positions(chat)[0][..., -count:]}
        return {}

    def compute_positions(self, chat: Chat) -> tuple[Tensor, Tensor]:
        """Where every token is, and how far that is from its place in the row."""
        inputs = chat.inputs(self.entry)
        if "image_grid_thw" in inputs:
            found: tuple[Tensor, Tensor] = self.model.model.get_rope_index(**inputs)
            return found
        places = (chat.mask.cumsum(-1) - 1).clamp(min=0)
        if self.family != "llava":
            places = places.expand(3, *places.shape)
        return places, torch.zeros(len(chat.ids), 1, dtype=torch.int64)

    @contextmanager
    def refusal(self, chat: Chat) -> Iterator[list[bool]]:
        """A pruned cache continues with the same pruning only; refused, it stays as it was."""
        refused: list[bool] = []
        stages = None if self.method is None else tuple(self.method.pruning_layers(DEPTH))
        if chat.pruned_at in (None, stages):
            yield refused
            return
        refused.append(True)
        with pytest.raises(tc.InputError, match="cache"):
            yield refused

    def list_dropped(self, chat: Chat, beams: int = 1) -> dict[int, Tensor]:
        """What the method dropped from a text that was read in one pass."""
        if self.method is None:
            return {}
        visual = self.entry.visual({"input_ids": chat.ids})
        if isinstance(self.method, KeepRandom):
            return dropped_by(self.method, {}, visual)
        gone = visual.clone()
        if visual.any():
            for trace in self.run.trace[::beams]:
                row = trace.sample // beams
                gone[row, visual[row].nonzero().squeeze(-1)[trace.kept]] = False
        return {self.method.pruning_layers(DEPTH)[0]: gone}

    def note(self, chat: Chat, gone: dict[int, Tensor]) -> None:
        chat.gone = chat.gone or gone
        if any(dropped.any() for dropped in chat.gone.values()):
            chat.pruned_at = chat.pruned_at or tuple(self.method.pruning_layers(DEPTH))

    def expect(self, chat: Chat) -> Tensor:
        return blocked_forward_schedule(self.oracle, chat.inputs(self.entry), chat.gone)

    def compare(self, chat: Chat, found: Tensor) -> None:
        """The newest logits of a text."""
        count = found.shape[1]
        left = chat.mask.bool()
        for gone in chat.gone.values():
            left = left & ~gone
        close(found[left[:, -count:]], self.expect(chat)[:, -count:][left[:, -count:]])

    def compare_words(self, chat: Chat, found: Any) -> None:
        """Logits of generated words, which the chat then has too, as its cache does."""
        chat.append(found.sequences[:, chat.length : -1])
        steps = torch.stack(found.logits, 1)
        close(steps, self.expect(chat)[:, -steps.shape[1] :])


@cache
def get_oracle(name: str) -> PreTrainedModel:
    """The same model once more, never pruned."""
    return ZOO[name].build()


def compute_end(*masks: Tensor) -> int:
    """Where the last token of any row is that some mask marks, counted from 1."""
    return max((int(each.any(0).nonzero().max()) + 1 for each in masks if each.any()), default=0)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


@contextmanager
def stumble(model: Any, place: int) -> Iterator[None]:
    """Throw in a decoder layer, in the vision encoder (-1), in the head (-2) or the method (-3)."""

    def throw(*_: Any) -> None:
        raise StumbleError

    if place == -3:
        KeepSome.stumbles.append(None)
        try:
            yield
        finally:
            KeepSome.stumbles.clear()
        return
    encoder = getattr(model.model, "vision_tower", None) or model.model.visual
    module = {-1: encoder, -2: model.lm_head}.get(place) or decoder_blocks(model)[place]
    handle = module.register_forward_hook(throw)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_in_any_order(family: str) -> None:
    machine: Any = type("CallSequences", (CallSequences,), {"family": family, "ran": Counter()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, SEQUENCES // len(FAMILIES)),
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not ASKED,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{family}: {machine.ran['sequences']} sequences, {machine.ran['steps']} steps")
