"""What methods may read from the vision encoder, by value."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.pruning.merging_method import MergePairs, slow_encoder
from tests.pruning.test_matrix import built, generate, with_media
from tests.pruning.test_prune import fingerprint
from tests.pruning.test_vision_merging import slow
from tests.pruning.variants import VARIANTS
from tests.zoo import ZOO
from tests.zoo.entry import SIDES, Inputs, Side, ZooEntry
from tokencover.errors import InputError
from tokencover.families import FAMILIES
from tokencover.methods import Choice, Method, View, VisionOutputs
from tokencover.pruning.prune import prune

NAMES = ("llava", "llava_next", "video_llava")
"""Those with a class token and three blocks of which the second makes the features."""
WITH_CLASSES = [pytest.param(ZOO[name], id=name) for name in NAMES if name in ZOO]
ABLE = [*WITH_CLASSES, *(pytest.param(ZOO[name], id=name) for name in ("deepseek_vl", "janus"))]
"""Those whose patches become visual tokens one to one."""
REFUSED = [
    pytest.param(entry, id=name)
    for family in FAMILIES
    for name, entry in ZOO.items()
    if name in family.model_types and not family.reads_vision_encoder
]


@dataclass(frozen=True)
class Read(Method):
    """Keep everything but every third token at each stage, and the views for the test."""

    reads_prompt = False

    stages: tuple[int, ...] = (0,)
    named: tuple[int, ...] | None = ()
    seen: list[View] = field(default_factory=list, compare=False)
    drops_newlines: bool = True

    def pruning_layers(self, num_layers: int) -> Sequence[int]:
        return self.stages

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        return self.named

    def choose(self, view: View) -> Choice:
        self.seen.append(view)
        counts = view.mask.sum(-1).tolist()
        return Choice([torch.tensor([i for i in range(n) if i % 3]) for n in counts])


@dataclass(frozen=True)
class MergeAndRead(MergePairs):
    """Merges in the vision encoder and reads from it in the same run."""

    stages: tuple[int, ...] = (0,)
    seen: list[View] = field(default_factory=list, compare=False)

    def watched_vision_blocks(self, num_blocks: int, feature_block: int) -> Sequence[int] | None:
        return range(num_blocks)

    def choose(self, view: View) -> Choice:
        self.seen.append(view)
        return super().choose(view)


def views_of(model: PreTrainedModel, inputs: Inputs, method: Read | MergeAndRead) -> list[View]:
    with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
        model(**inputs, use_cache=False)
    return method.seen


def encoded_in(view: View) -> VisionOutputs:
    assert view.vision is not None
    return view.vision


def check_projected(view: View, newlines: int) -> None:
    """Features that go through the projector are the visual tokens before the decoder."""
    encoded = encoded_in(view)
    projected = encoded.project(encoded.features).flatten(0, 1)
    assert encoded.index.shape == view.mask.shape
    assert torch.equal(encoded.index < 0, ~view.mask | (view.kind == 1))
    assert int((view.mask & (encoded.index < 0)).sum()) == newlines
    there = encoded.index >= 0
    found = projected[encoded.index[there]]
    torch.testing.assert_close(found, view.hidden_states[there], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("entry", ABLE)
def test_projected_features_are_the_visual_tokens(entry: ZooEntry, side: Side) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        inputs = entry.inputs(kind, side)
        newline = entry.newline(inputs)
        (view,) = views_of(model, inputs, Read())
        check_projected(view, 0 if newline is None else int(newline.sum()))


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("entry", ABLE)
def test_generating_shows_the_same(entry: ZooEntry, beams: int) -> None:
    model = built(entry.name)
    for kind in with_media(entry):
        inputs = entry.inputs(kind)
        method = Read()
        with prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
            generate(model, inputs, max_new_tokens=2, num_beams=beams, do_sample=False)
        (view,) = method.seen
        (alone,) = views_of(model, inputs, Read())
        newlines = int((view.kind == 1).sum())
        check_projected(view, newlines)
        assert torch.equal(encoded_in(view).features, encoded_in(alone).features)
        assert torch.equal(
            encoded_in(view).index, encoded_in(alone).index.repeat_interleave(beams, 0)
        )


@pytest.mark.parametrize("entry", ABLE)
def test_later_stages_see_the_tokens_that_are_left(entry: ZooEntry) -> None:
    inputs = entry.inputs("ragged")
    first, second = views_of(built(entry.name), inputs, Read((0, 2)))
    before, after = encoded_in(first), encoded_in(second)
    assert torch.equal(before.features, after.features)
    for row, count in enumerate(first.mask.sum(-1).tolist()):
        left = [place for place in range(count) if place % 3]
        assert torch.equal(after.index[row, : len(left)], before.index[row, left])
        assert bool((after.index[row, len(left) :] == -1).all())


def crops_and_encoders(model: Any, inputs: Inputs) -> list[tuple[Any, Tensor]]:
    """Vision encoders with the crops that go through each, found by a hook."""
    seen: list[tuple[Any, Tensor]] = []
    base = model.model
    names = ("vision_tower", "image_tower", "video_tower")
    handles = [
        getattr(base, name).register_forward_pre_hook(
            lambda encoder, args: seen.append((encoder, args[0]))
        )
        for name in names
        if hasattr(base, name)
    ]
    with torch.no_grad():
        model(**inputs)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("entry", WITH_CLASSES)
def test_attention_from_queries_and_keys_is_the_encoder_s_own(entry: ZooEntry) -> None:
    model = built(entry.name, "eager")
    for kind in with_media(entry):
        inputs = entry.inputs(kind)
        runs = [
            encoder(pixels, output_attentions=True, output_hidden_states=True)
            for encoder, pixels in crops_and_encoders(model, inputs)
        ]
        (view,) = views_of(model, inputs, Read(named=(2, 0, 1)))
        encoded = encoded_in(view)
        assert (encoded.num_blocks, encoded.feature_block, encoded.classes) == (3, 1, 1)
        features = torch.cat([run.hidden_states[-2] for run in runs])
        assert torch.equal(encoded.features, features)
        for block in range(3):  # block 2 is after the features
            expected = torch.cat([run.attentions[block] for run in runs])
            products = encoded.queries(block) @ encoded.keys(block).transpose(-1, -2)
            found = (products * encoded.scaling).softmax(-1)
            torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_siglip_has_no_class_token() -> None:
    variant = VARIANTS["llava, siglip"]
    (view,) = views_of(variant.build(), variant.inputs, Read(named=(0,)))
    encoded = encoded_in(view)
    assert (encoded.classes, encoded.num_blocks, encoded.feature_block) == (0, 2, 0)
    assert encoded.keys(0).shape == (2, 2, 16, 12)
    check_projected(view, 0)


def test_dinov2_has_a_class_token_and_attention_of_its_own_make() -> None:
    variant = VARIANTS["llava, dinov2"]
    model: Any = variant.build()
    (view,) = views_of(model, variant.inputs, Read(named=(0, 1)))
    encoded = encoded_in(view)
    assert (encoded.classes, encoded.num_blocks, encoded.feature_block) == (1, 3, 1)
    check_projected(view, 0)
    model.model.vision_tower.set_attn_implementation("eager")
    maps = model.model.vision_tower(
        variant.inputs["pixel_values"], output_attentions=True
    ).attentions
    for block in range(2):
        products = encoded.queries(block) @ encoded.keys(block).transpose(-1, -2)
        found = (products * encoded.scaling).softmax(-1)
        torch.testing.assert_close(found, maps[block], atol=1e-6, rtol=1e-5)


def test_a_class_token_that_the_model_keeps_has_an_index() -> None:
    variant = VARIANTS["llava, class token kept"]
    (view,) = views_of(variant.build(), variant.inputs, Read())
    assert encoded_in(view).index[0, :34].tolist() == list(range(34))
    check_projected(view, 0)


@pytest.mark.parametrize("entry", WITH_CLASSES)
def test_merged_tokens_are_spread(entry: ZooEntry) -> None:
    """A merge before blocks 0 and 1: each block's keys are those of the tokens it had."""
    model = built(entry.name)
    inputs = entry.inputs("two_images")
    method = MergeAndRead(pairs=2)
    (view,) = views_of(model, inputs, method)
    encoded = encoded_in(view)
    check_projected(view, int((view.kind == 1).sum()))
    hidden = []
    with slow(model, method):
        for encoder, pixels in crops_and_encoders(model, inputs):
            hidden.append(slow_encoder(encoder, method)(pixels).hidden_states)
    states = [torch.cat(parts) for parts in zip(*hidden, strict=True)]
    torch.testing.assert_close(encoded.features, states[-2], atol=1e-5, rtol=1e-5)
    encoder = next(encoder for encoder, _ in crops_and_encoders(model, inputs))
    last = encoder.encoder.layers[2]  # nothing is merged before it: its input is the features
    for name, found in (("q_proj", encoded.queries(2)), ("k_proj", encoded.keys(2))):
        expected = getattr(last.self_attn, name)(last.layer_norm1(states[2]))
        expected = expected.unflatten(-1, (2, -1)).transpose(1, 2)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for block in range(2):
        keys = encoded.keys(block)
        assert keys.shape == (*encoded.features.shape[:1], 2, encoded.features.shape[1], 12)
        distinct = [len(crop.unique(dim=0)) for crop in keys.transpose(1, 2).flatten(2)]
        assert distinct == [encoded.features.shape[1] - 2 * (block + 1)] * len(distinct)


def test_a_block_that_was_not_named_is_refused() -> None:
    (view,) = views_of(built("llava"), ZOO["llava"].inputs("single"), Read(named=(1,)))
    with pytest.raises(
        InputError, match=r"block 2 of the vision encoder was not recorded, only \[1\]"
    ):
        encoded_in(view).queries(2)


def test_methods_that_do_not_ask_get_nothing() -> None:
    (view,) = views_of(built("llava"), ZOO["llava"].inputs("single"), Read(named=None))
    assert view.vision is None


@pytest.mark.parametrize("entry", REFUSED)
def test_families_whose_tokens_are_not_the_encoder_s_are_refused(entry: ZooEntry) -> None:
    model = built(entry.name)
    before = fingerprint(model)
    with pytest.raises(InputError, match=r"Read reads .*, which .* does not support"):
        prune(model, Read(), prompt=torch.zeros(1, 1))
    assert fingerprint(model) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vipllava", "joins the features of several vision-encoder blocks"),
        ("llava, pixtral", "type 'pixtral' packs images of all sizes into one row"),
    ],
)
def test_other_encoders_are_refused(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prune(VARIANTS[name].build(), Read(), prompt=torch.zeros(1, 1))


def test_pooled_videos_are_refused() -> None:
    variant = VARIANTS["llava_next_video, video"]
    with pytest.raises(InputError, match="pools the frames of a video"):
        views_of(variant.build(), variant.inputs, Read())


@pytest.mark.parametrize("named", [(3,), (-1,)])
def test_blocks_the_encoder_does_not_have_are_refused(named: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="lie between 0 and 2"):
        prune(built("llava"), Read(named=named), prompt=torch.zeros(1, 1))


@pytest.mark.parametrize("method", [Read(), MergePairs()], ids=["read", "merge"])
def test_another_feature_layer_in_the_call_is_refused(method: Method) -> None:
    model, inputs = built("llava"), ZOO["llava"].inputs("single")
    prompt = torch.zeros_like(inputs["input_ids"])
    with torch.no_grad(), prune(model, method, prompt=prompt):
        with pytest.raises(InputError, match=r"layer \(-2,\), but this call takes \(-1,\)"):
            model(**inputs, vision_feature_layer=-1)
        model(**inputs, vision_feature_layer=2)  # the same one, counted from the front


def test_features_made_before_are_refused() -> None:
    model, inputs = built("llava"), ZOO["llava"].inputs("single")
    whole: Any = model
    with torch.no_grad():
        features = whole.get_image_features(inputs["pixel_values"])
        text = {name: value for name, value in inputs.items() if name != "pixel_values"}
        with prune(model, Read(), prompt=torch.zeros_like(inputs["input_ids"])):
            whole.get_image_features(inputs["pixel_values"])
            model(**inputs)
            with pytest.raises(InputError, match="did not come from the model's vision encoder"):
                model(**text, mm_encoder_outputs={"image": features})


def recorded_in(view: View) -> list[weakref.ref[Tensor]]:
    encoded = encoded_in(view)
    keys: Any = encoded.keys
    records = [each.blocks[0].outputs for each in keys.func.__self__.recordings]
    return [weakref.ref(encoded.features), *(weakref.ref(each["k"]) for each in records)]


@pytest.mark.parametrize("entry", ABLE)
def test_nothing_is_left_behind(entry: ZooEntry) -> None:
    model, inputs = built(entry.name), entry.inputs("ragged")
    with torch.no_grad():
        plain = model(**inputs).logits
        before = fingerprint(model)
        method = Read(named=(0, 1))
        with prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
            assert fingerprint(model) != before
            model(**inputs)
            generate(model, inputs, max_new_tokens=2)
            held = [reference for view in method.seen for reference in recorded_in(view)]
            assert all(each() is not None for each in held)
            method.seen.clear()
            gc.collect()
            assert not any(each() is not None for each in held)
        assert fingerprint(model) == before
        assert torch.equal(model(**inputs).logits, plain)


class Stumbles(Read):
    """Fails on the first call."""

    def choose(self, view: View) -> Choice:
        if not self.seen:
            self.seen.append(view)
            raise RuntimeError("stumbled")
        return super().choose(view)


def test_an_error_does_not_spoil_the_next_pass() -> None:
    model, inputs = built("llava"), ZOO["llava"].inputs("ragged")
    method = Stumbles()
    with torch.no_grad(), prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
        with pytest.raises(RuntimeError, match="stumbled"):
            model(**inputs)
        model(**inputs)
    check_projected(method.seen[1], 0)


class MergeFeatures(Read):
    """Writes projected features to the tokens that it keeps, which changes nothing."""

    merges = True

    def choose(self, view: View) -> Choice:
        encoded = encoded_in(view)
        projected = encoded.project(encoded.features).flatten(0, 1)[encoded.index.clamp(min=0)]
        return Choice(super().choose(view).kept, hidden_states=projected)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_flow_through_features(checkpointing: bool) -> None:
    inputs = ZOO["llava"].inputs("ragged")
    gradients = []
    for method in (MergeFeatures(), Read(named=None)):
        model: Any = ZOO["llava"].build().train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        with prune(model, method, prompt=torch.zeros_like(inputs["input_ids"])):
            model(**inputs, labels=inputs["input_ids"]).loss.backward()
        gradients.append(model.model.vision_tower.embeddings.patch_embedding.weight.grad)
    assert bool((gradients[0] != 0).any())
    torch.testing.assert_close(*gradients)
