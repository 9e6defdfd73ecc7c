"""Images that are encoded once give what images that are encoded repeatedly give."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from tests.zoo import ZOO
from tests.zoo.entry import Inputs, ZooEntry
from tokencover.families import family_of
from tokencover.methods import Method, MoB, ToMe, VisionZip
from tokencover.pruning import EncoderMemory, prune

ALL = [pytest.param(entry, id=entry.name) for entry in ZOO.values()]


def answer(
    model: PreTrainedModel,
    entry: ZooEntry,
    inputs: Inputs,
    method: Method | None = None,
    memory: EncoderMemory | None = None,
) -> list[list[int]]:
    """Token ids, and what was kept."""
    ask: Any = model.generate
    with torch.inference_mode(), ExitStack() as stack:
        run = None
        if method is not None:
            words = entry.user_words(inputs)
            run = stack.enter_context(prune(model, method, prompt=words))
            if memory is not None:
                stack.enter_context(run.recall_with(memory))
        tokens = ask(**inputs, max_new_tokens=2, do_sample=False).tolist()
    kept = [] if run is None else [trace.kept.tolist() for trace in run.trace]
    return [*tokens, *kept]


@pytest.fixture
def llava() -> tuple[PreTrainedModel, Inputs]:
    return ZOO["llava"].build(), ZOO["llava"].inputs("ragged")


@pytest.mark.parametrize("entry", ALL)
def test_the_next_method_is_given_what_the_first_computed(entry: ZooEntry) -> None:
    model = entry.build()
    kind = "video" if "ragged" not in entry.kinds else "ragged"
    inputs = entry.inputs(kind)
    plain, pruned = answer(model, entry, inputs), answer(model, entry, inputs, MoB(5))
    memory = EncoderMemory(model)
    with memory.attach():
        assert answer(model, entry, inputs, None, memory) == plain
        assert answer(model, entry, inputs, MoB(5), memory) == pruned
        assert answer(model, entry, inputs, None, memory) == plain
    assert memory.recalled == 2 * memory.encoded > 0
    assert answer(model, entry, inputs) == plain
    base = model.get_submodule(family_of(model).base)
    assert not {"get_image_features", "get_video_features"} & set(vars(base))


def test_methods_that_read_from_the_encoder_are_given_what_was_read(
    llava: tuple[PreTrainedModel, Inputs],
) -> None:
    model, inputs = llava
    entry, memory = ZOO["llava"], EncoderMemory(model)
    expected = answer(model, entry, inputs, VisionZip(6))
    with memory.attach():
        answer(model, entry, inputs, MoB(5), memory)
        alone = memory.encoded
        for _ in range(3):
            assert answer(model, entry, inputs, VisionZip(6), memory) == expected
    # Once more for what is read there, which the first method did not ask for.
    assert memory.encoded == 2 * alone
    assert memory.recalled == 2 * alone


def test_methods_that_merge_in_the_encoder_run_it(llava: tuple[PreTrainedModel, Inputs]) -> None:
    model, inputs = llava
    entry, memory = ZOO["llava"], EncoderMemory(model)
    expected = answer(model, entry, inputs, ToMe(8))
    with memory.attach():
        plain = answer(model, entry, inputs, None, memory)
        known = memory.encoded
        assert answer(model, entry, inputs, ToMe(8), memory) == expected
        assert memory.encoded == known
        assert answer(model, entry, inputs, None, memory) == plain


def test_each_picture_is_known_by_itself(llava: tuple[PreTrainedModel, Inputs]) -> None:
    """In another batch, and in another order, it is not encoded again; another image is."""
    model, _ = llava
    entry, memory = ZOO["llava"], EncoderMemory(model)
    samples = entry.samples("ragged")
    other = samples[0].repainted()
    with memory.attach():
        answer(model, entry, entry.collate(samples))
        assert memory.encoded == 3
        mixed = answer(model, entry, entry.collate([samples[2], other, samples[0]]))
        assert memory.encoded == 4
    assert mixed == answer(model, entry, entry.collate([samples[2], other, samples[0]]))


def test_what_has_no_room_is_encoded_again(llava: tuple[PreTrainedModel, Inputs]) -> None:
    model, inputs = llava
    entry, memory = ZOO["llava"], EncoderMemory(model, room=0)
    plain = answer(model, entry, inputs)
    with memory.attach():
        assert answer(model, entry, inputs) == answer(model, entry, inputs) == plain
    assert memory.recalled == 0


def test_training_is_left_alone(llava: tuple[PreTrainedModel, Inputs]) -> None:
    model, inputs = llava
    memory = EncoderMemory(model)
    with memory.attach(), torch.enable_grad():
        model(**inputs)
    assert memory.encoded == 0
