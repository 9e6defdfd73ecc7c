"""Merging inside the vision encoder, by value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.pruning.gathering import always_gather
from tests.pruning.merging_method import MergeNothing, MergePairs, slow_encoder
from tests.pruning.test_matrix import NEVER, built, generate, with_media
from tests.pruning.test_prune import fingerprint
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tests.zoo.oracle import (
    best_words,
    blocked_forward_schedule,
    recompute_decode,
    text_model,
)
from tokencover.errors import InputError
from tokencover.families import FAMILIES, family_of
from tokencover.methods.base import VisionMerge, VisionView
from tokencover.pruning.prune import prune

NAMES = ("llava", "llava_next", "video_llava", "deepseek_vl", "janus")
ABLE = [pytest.param(ZOO[name], id=name) for name in NAMES if name in ZOO]
REFUSED = [
    pytest.param(entry, id=name)
    for family in FAMILIES
    for name, entry in ZOO.items()
    if name in family.model_types and not family.merges_in_vision_encoder
]
METHODS = [
    pytest.param(MergePairs(), id="pairs"),
    pytest.param(MergePairs(encoder_stages=(1,)), id="late"),
    pytest.param(MergePairs(proportional_attention=True), id="proportional"),
    pytest.param(MergePairs(inside_vision_blocks=True), id="inside"),
    pytest.param(
        MergePairs(2, proportional_attention=True, inside_vision_blocks=True),
        id="inside proportional",
    ),
]


@contextmanager
def slow(model: PreTrainedModel, method: MergePairs) -> Iterator[None]:
    """The unpruned model, with vision encoders that merge by hand."""
    encoders: list[Any] = [model.get_submodule(path) for path in family_of(model).vision_encoders]
    for encoder in encoders:
        encoder.forward = slow_encoder(encoder, method)
    try:
        yield
    finally:
        for encoder in encoders:
            del encoder.forward


def repeated(model: PreTrainedModel, entry: ZooEntry, inputs: Inputs) -> Tensor:
    """Visual tokens that look like an earlier one of the same image, found by their values."""
    seen: list[Tensor] = []
    handle = text_model(model).register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["inputs_embeds"]), with_kwargs=True
    )
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        handle.remove()
    dropped = torch.zeros_like(inputs["input_ids"], dtype=torch.bool)
    newline = entry.newline(inputs)
    for span in entry.spans(inputs):
        places = [
            place for place in span.positions.tolist()
            if newline is None or not newline[span.row, place]
        ]  # fmt: skip
        features = seen[0][span.row, places]
        alike = (features[:, None] - features[None]).abs().amax(-1) < 1e-5
        for later, place in enumerate(places):
            dropped[span.row, place] = bool(alike[later, :later].any())
    return dropped


def list_gone(
    model: PreTrainedModel, entry: ZooEntry, inputs: Inputs, method: MergePairs
) -> tuple[dict[int, Tensor], Tensor]:
    """What is dropped before which block, under `slow`, and which positions are left."""
    gone = {0: repeated(model, entry, inputs)}
    visual = entry.visual(inputs)
    left = visual & ~gone[0]
    for stage in method.stages:
        odd = torch.zeros_like(left)
        for row, mask in enumerate(left):
            odd[row, mask.nonzero().squeeze(-1)[1::2]] = True
        gone[stage] = gone.get(stage, torch.zeros_like(odd)) | odd
        left = left & ~odd
    return gone, inputs["attention_mask"].bool() & (left | ~visual)


def list_left(
    model: PreTrainedModel, entry: ZooEntry, inputs: Inputs, method: MergePairs
) -> Tensor:
    """Which positions are left."""
    with slow(model, method):
        return list_gone(model, entry, inputs, method)[1]


def expected_logits(
    model: PreTrainedModel, entry: ZooEntry, inputs: Inputs, method: MergePairs
) -> tuple[Tensor, Tensor]:
    """Logits of the slow oracle, and which positions are left."""
    with slow(model, method):
        gone, left = list_gone(model, entry, inputs, method)
        return blocked_forward_schedule(model, inputs, gone), left


def merged_logits(model: PreTrainedModel, inputs: Inputs, method: MergePairs) -> Tensor:
    prompt = torch.zeros_like(inputs["input_ids"])
    with torch.no_grad(), prune(model, method, prompt=prompt):
        found: Tensor = model(**inputs, use_cache=False).logits
    return found


@pytest.mark.parametrize(("side", "attention"), [("left", "sdpa"), ("right", "eager")])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("entry", ABLE)
def test_merging_equals_the_slow_encoder(
    entry: ZooEntry, method: MergePairs, side: Side, attention: str
) -> None:
    model = built(entry.name, attention)
    for kind in with_media(entry):
        inputs = entry.inputs(kind, side)
        expected, left = expected_logits(model, entry, inputs, method)
        assert bool((inputs["attention_mask"].bool() & ~left).any())
        found = merged_logits(model, inputs, method)
        torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("stages", [(0,), (2,), (0, 3)])
@pytest.mark.parametrize("entry", ABLE)
def test_merging_goes_together_with_stages_in_the_decoder(
    entry: ZooEntry, stages: tuple[int, ...]
) -> None:
    model, method = built(entry.name), MergePairs(stages=stages)
    for kind in with_media(entry):
        inputs = entry.inputs(kind)
        expected, left = expected_logits(model, entry, inputs, method)
        found = merged_logits(model, inputs, method)
        torch.testing.assert_close(found[left], expected[left], atol=1e-5, rtol=0)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("entry", ABLE)
def test_merging_nothing_equals_the_unpruned_model_both_ways(entry: ZooEntry, inside: bool) -> None:
    model = built(entry.name)
    method = MergeNothing(proportional_attention=True, inside_vision_blocks=inside)
    for kind in entry.kinds:
        inputs = entry.inputs(kind)
        real = inputs["attention_mask"].bool()
        with torch.no_grad():
            plain = model(**inputs, use_cache=False).logits
        assert torch.equal(merged_logits(model, inputs, method), plain)
        with (
            always_gather(),
            torch.no_grad(),
            prune(model, method, prompt=torch.zeros_like(real)),
        ):
            gathered = model(**inputs, use_cache=False).logits
        torch.testing.assert_close(gathered[real], plain[real], atol=1e-5, rtol=0)


def test_merging_behind_the_feature_layer_changes_nothing() -> None:
    model, entry = built("llava"), ZOO["llava"]
    inputs = entry.inputs("single")
    with torch.no_grad():
        plain = model(**inputs, use_cache=False).logits
    assert torch.equal(merged_logits(model, inputs, MergePairs(encoder_stages=(2,))), plain)


IN_BOTH = MergePairs(stages=(2,), proportional_attention=True)
"""Merges in the vision encoder, and drops in the decoder."""


@cache
def single_runs(name: str, kind: str) -> list[Tensor]:
    """Logits of the tokens that are left, each sample alone."""
    entry, model, found = ZOO[name], built(name), []
    for sample in entry.samples(kind):
        alone = entry.collate([sample])
        left = list_left(model, entry, alone, IN_BOTH)
        found.append(merged_logits(model, alone, IN_BOTH)[left])
    return found


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", ABLE)
def test_a_batch_equals_the_single_runs(entry: ZooEntry, side: Side) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        batch = entry.inputs(kind, side)
        together = merged_logits(model, batch, IN_BOTH)
        left = list_left(model, entry, batch, IN_BOTH)
        for row, single in enumerate(single_runs(entry.name, kind)):
            torch.testing.assert_close(together[row, left[row]], single, atol=1e-5, rtol=0)


@pytest.mark.parametrize("entry", ABLE)
def test_cached_decoding_equals_recomputation(entry: ZooEntry) -> None:
    model, method = built(entry.name), MergePairs()
    for kind in with_media(entry):
        inputs = entry.inputs(kind)
        with prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
            found = generate(
                model, inputs, max_new_tokens=5, do_sample=False, eos_token_id=NEVER,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        words = found.sequences[:, inputs["input_ids"].shape[1] :]
        with slow(model, method):
            dropped = repeated(model, entry, inputs)
            expected = recompute_decode(model, inputs, words[:, :-1], dropped, 0)
        assert torch.equal(words, best_words(model, expected))
        torch.testing.assert_close(torch.stack(found.logits, 1), expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("entry", ABLE)
def test_beam_search_of_a_batch_equals_the_single_runs(entry: ZooEntry) -> None:
    model, method = built(entry.name), MergePairs(stages=(2,))
    options: dict[str, Any] = {"max_new_tokens": 5, "num_beams": 3, "eos_token_id": NEVER}

    def generated(inputs: Inputs) -> Tensor:
        with prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
            found: Tensor = generate(model, inputs, do_sample=False, **options)
        return found[:, inputs["input_ids"].shape[1] :]

    together = generated(entry.inputs("two_images"))
    for row, sample in enumerate(entry.samples("two_images")):
        assert torch.equal(together[row], generated(entry.collate([sample]))[0])


@pytest.mark.parametrize("entry", ABLE)
def test_every_layer_works_on_the_tokens_that_are_left(entry: ZooEntry) -> None:
    model, method = built(entry.name), MergePairs()
    for kind in with_media(entry):
        inputs = entry.inputs(kind)
        left = list_left(model, entry, inputs, method)
        visual = entry.visual(inputs)
        with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(left)) as run:
            model(**inputs)
        assert [trace.sample for trace in run.trace] == visual.any(-1).nonzero().flatten().tolist()
        for trace in run.trace:
            here = visual[trace.sample]
            kept = left[trace.sample, here].nonzero().flatten()
            assert torch.equal(trace.kept, kept)
            assert trace.visual_tokens == int(here.sum())
            assert trace.tokens_per_layer == [len(kept)] * 5
            assert trace.seconds > 0


def test_the_counts_are_exact() -> None:
    model, inputs = built("llava"), ZOO["llava"].inputs("two_images")
    prompt = torch.zeros_like(inputs["input_ids"])
    with torch.no_grad():
        with prune(model, MergePairs(), prompt=prompt) as run:
            model(**inputs)
        assert [trace.tokens_per_layer for trace in run.trace] == [[34] * 5] * 2  # 2 * (25 - 8)
        with prune(model, MergePairs(stages=(0, 3)), prompt=prompt) as run:
            model(**inputs)
        assert [trace.tokens_per_layer for trace in run.trace] == [[17, 17, 17, 9, 9]] * 2


@pytest.mark.parametrize(
    ("name", "stages", "left"),
    [
        ("vipllava", (0, 1), 2 * (16 - 4)),
        ("vipllava", (0, 1, 2), 2 * (16 - 6)),  # the deepest feature layer counts
        ("llava, class token kept", (0, 1), 2 * (17 - 4)),
        ("llava, siglip", (0,), 2 * (16 - 2)),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_variants_of_llava(name: str, stages: tuple[int, ...], left: int, inside: bool) -> None:
    variant, method = VARIANTS[name], MergePairs(2, stages, inside_vision_blocks=inside)
    prompt = torch.zeros_like(variant.inputs["input_ids"])
    with torch.no_grad(), prune(variant.build(), method, prompt=prompt) as run:
        run._model(**variant.inputs)
    assert run.trace[0].tokens_per_layer == [left] * 2


def test_pooled_videos_are_refused() -> None:
    variant = VARIANTS["llava_next_video, video"]
    with pytest.raises(InputError, match="pools the frames of a video"):
        merged_logits(variant.build(), variant.inputs, MergePairs(2))


@pytest.mark.parametrize("entry", REFUSED)
def test_families_without_such_encoders_are_refused(entry: ZooEntry) -> None:
    model = built(entry.name)
    before = fingerprint(model)
    with pytest.raises(InputError, match=r"in the vision encoder, which .* does not support"):
        prune(model, MergePairs(), prompt=torch.zeros(1, 1))
    assert fingerprint(model) == before


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("entry", ABLE)
def test_nothing_is_left_behind(entry: ZooEntry, inside: bool) -> None:
    method = MergePairs(inside_vision_blocks=inside)
    model, inputs = built(entry.name), entry.inputs("ragged")
    with torch.no_grad():
        plain = model(**inputs).logits
        before = fingerprint(model)
        with prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
            assert fingerprint(model) != before
            model(**inputs)
            generate(model, inputs, max_new_tokens=2)
        assert fingerprint(model) == before
        assert torch.equal(model(**inputs).logits, plain)


class Stumbles(MergePairs):
    """Fails once, in the middle of the vision encoder."""

    failed = False

    def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
        if view.block == 1 and not Stumbles.failed:
            Stumbles.failed = True
            raise RuntimeError("stumbled")
        return super().merge_in_vision_encoder(view)


def test_an_error_in_the_encoder_does_not_spoil_the_next_pass() -> None:
    model, inputs = built("llava"), ZOO["llava"].inputs("ragged")
    before = fingerprint(model)
    Stumbles.failed = False
    with torch.no_grad(), prune(model, Stumbles(), prompt=torch.zeros_like(inputs["input_ids"])):
        with pytest.raises(RuntimeError, match="stumbled"):
            model(**inputs)
        found = model(**inputs, use_cache=False).logits
    assert fingerprint(model) == before
    assert torch.equal(found, merged_logits(model, inputs, MergePairs()))


def test_gradients_flow_through_merged_tokens() -> None:
    model, inputs = ZOO["llava"].build(), ZOO["llava"].inputs("ragged")
    base: Any = model.model
    weight = base.vision_tower.embeddings.patch_embedding.weight
    with prune(model, MergePairs(), prompt=torch.zeros_like(inputs["input_ids"])):
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert weight.grad is not None
    assert bool((weight.grad != 0).any())


def test_gradient_checkpointing_of_the_encoder_is_refused() -> None:
    model, inputs = ZOO["llava"].build().train(), ZOO["llava"].inputs("ragged")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    with (
        prune(model, MergePairs(), prompt=torch.zeros_like(inputs["input_ids"])),
        pytest.raises(InputError, match="gradient checkpointing"),
    ):
        model(**inputs)


def choice_of(kind: str, view: VisionView) -> VisionMerge:
    crops, tokens, _ = view.hidden_states.shape
    groups = torch.arange(tokens).repeat(crops, 1)
    states = view.hidden_states
    if kind == "class merged":
        groups, states = (groups - 1).clamp(min=0), states[:, 1:]
    elif kind == "class moved":
        groups = groups.flip(1)
    elif kind == "empty":
        groups[:, -1] = tokens - 2
    elif kind == "beyond":
        states = states[:, 1:]
    elif kind == "type":
        groups = groups.int()
    elif kind == "width":
        states = states[..., 1:]
    return VisionMerge(groups, states)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("class merged", "must stay alone and first"),
        ("class moved", "must stay alone and first"),
        ("empty", "new token 25 of crop 0 has no member"),
        ("beyond", "groups run from 0 to 25, but there are 25"),
        ("type", "torch.int32; expected"),
        ("width", "merged states have shape"),
    ],
)
def test_impossible_choices_are_refused(kind: str, message: str) -> None:
    class Wrong(MergePairs):
        def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
            return choice_of(kind, view)

    model, inputs = built("llava"), ZOO["llava"].inputs("single")
    with pytest.raises(InputError, match=message):
        merged_logits(model, inputs, Wrong())


@pytest.mark.parametrize("stages", [(3,), (1, 0), (-1,)])
def test_blocks_the_encoder_does_not_have_are_refused(stages: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="lie between 0 and 2"):
        prune(built("llava"), MergePairs(encoder_stages=stages), prompt=torch.zeros(1, 1))


def test_there_are_no_keys_before_the_first_block() -> None:
    class Early(MergePairs):
        def merge_in_vision_encoder(self, view: VisionView) -> VisionMerge:
            view.keys()
            return super().merge_in_vision_encoder(view)

    model, inputs = built("llava"), ZOO["llava"].inputs("single")
    with pytest.raises(InputError, match="no keys before vision-encoder block 0"):
        merged_logits(model, inputs, Early())


def test_encoders_of_other_kinds_are_refused() -> None:
    with pytest.raises(InputError, match="blocks of encoders of type 'pixtral'"):
        prune(VARIANTS["llava, pixtral"].build(), MergePairs(), prompt=torch.zeros(1, 1))
