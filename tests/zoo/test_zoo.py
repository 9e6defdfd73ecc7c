"""The zoo itself must be sound before the pruning runtime is proven on it."""

import time
from functools import cache, partial
from inspect import signature
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from . import SIDES, ZOO, Inputs, Side, ZooEntry
from .oracle import (
    RECURRENT,
    additive_mask,
    base_model,
    best_words,
    block_kinds,
    blocked_forward,
    blocked_forward_schedule,
    decoder_blocks,
    pooled,
    recompute_decode,
    text_model,
)
from .vocabulary import FIRST_WORD, IMAGE, VIDEO

TOLERANCE = 1e-5
CLEAR = 1e-4

NAMES = tuple(ZOO)
CASES = [(name, kind) for name in NAMES for kind in ZOO[name].telling_kinds]
WITH_MEDIA = [(name, kind) for name, kind in CASES if kind != "text_only"]
CUTTABLE = [(name, kind) for name, kind in WITH_MEDIA if name != "llama4"]
"""Blocks of Llama 4 count the places of their tokens themselves."""


def with_sides(cases: list[tuple[str, str]]) -> list[tuple[str, str, Side]]:
    """Both sides of padding; one for entries whose blocks are called like another one's."""
    return [
        (name, kind, side)
        for name, kind in cases
        for side in SIDES
        if ZOO[name].alike is None or side == "left"
    ]


every_name = pytest.mark.parametrize("name", NAMES)
every_case = pytest.mark.parametrize(("name", "kind"), CASES)
every_case_with_media = pytest.mark.parametrize(("name", "kind"), WITH_MEDIA)
every_side = pytest.mark.parametrize("side", SIDES)
every_case_and_side = pytest.mark.parametrize(("name", "kind", "side"), with_sides(CASES))
DISTINCT = tuple(name for name in NAMES if ZOO[name].alike is None)
"""Entries whose blocks are not called like another one's: eager attention is tried on these."""
every_distinct_case = pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for name, kind in WITH_MEDIA if name in DISTINCT]
)


@cache
def model_of(name: str, attention: str = "sdpa") -> PreTrainedModel:
    return ZOO[name].build(attention)


def logits_of(model: PreTrainedModel, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        logits: Tensor = model(**inputs).logits
    return logits


@cache
def plain_logits(name: str, kind: str) -> Tensor:
    return logits_of(model_of(name), ZOO[name].inputs(kind, "left"))


def difference(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max())


def nothing(inputs: Inputs) -> Tensor:
    return torch.zeros_like(inputs["input_ids"], dtype=torch.bool)


def some_visual(entry: ZooEntry, inputs: Inputs, seed: int = 0) -> Tensor:
    """Drop about half of the visual tokens at random."""
    chance = torch.rand(inputs["input_ids"].shape, generator=torch.Generator().manual_seed(seed))
    return entry.visual(inputs) & (chance < 0.5)


def feature_count(model: PreTrainedModel, inputs: Inputs) -> int:
    """Count the features that the vision side of the model gives for the inputs."""
    counted = 0
    base = base_model(model)
    for kind, pixels in (("image", "pixel_values"), ("video", "pixel_values_videos")):
        if pixels in inputs:
            get_features = getattr(base, f"get_{kind}_features")
            known = signature(get_features).parameters.keys() & inputs.keys()
            with torch.no_grad():
                given = {key: inputs[key] for key in known}
                features = pooled(get_features(**given, return_dict=True))
            counted += sum(feature.shape[:-1].numel() for feature in features)
    return counted


@every_name
def test_builds_fast_seeded_and_in_eval_mode(name: str) -> None:
    start = time.perf_counter()
    torch.manual_seed(1)
    first = ZOO[name].build(layers=2)
    assert time.perf_counter() - start < 2.0
    torch.manual_seed(2)
    before = torch.get_rng_state()
    second = ZOO[name].build(layers=2)
    assert torch.equal(before, torch.get_rng_state())
    assert not first.training
    assert len(decoder_blocks(first)) == 2
    states = zip(first.state_dict().items(), second.state_dict().items(), strict=True)
    assert all(key == other and torch.equal(a, b) for (key, a), (other, b) in states)


@every_name
def test_builds_in_half_precision(name: str) -> None:
    model = ZOO[name].build(dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


@every_case
def test_batch_equals_single(name: str, kind: str) -> None:
    entry, model = ZOO[name], model_of(name)
    inputs, batch = entry.inputs(kind, "left"), plain_logits(name, kind)
    samples = entry.samples(kind)
    for row, sample in enumerate(samples if entry.equals_single_runs(kind) else samples[:1]):
        alone = logits_of(model, entry.collate([sample]))[0]
        assert difference(batch[row][inputs["attention_mask"][row].bool()], alone) < TOLERANCE


@every_case_and_side
def test_masks_and_grids_agree_with_the_model(name: str, kind: str, side: Side) -> None:
    entry = ZOO[name]
    inputs = entry.inputs(kind, side)
    visual = entry.visual(inputs)
    assert int(visual.sum()) == feature_count(model_of(name), inputs)
    assert sum(layout.tokens for row in entry.grids(inputs) for layout in row) == visual.sum()
    expected = [[medium.layout for medium in sample.media] for sample in entry.samples(kind)]
    assert entry.grids(inputs) == expected
    covered = nothing(inputs)
    for span in entry.spans(inputs):
        assert len(span.positions) == span.layout.tokens
        covered[span.row, span.positions] = True
    assert torch.equal(covered, visual)


@every_case_and_side
def test_prompt_mask_selects_recipe_text(name: str, kind: str, side: Side) -> None:
    entry = ZOO[name]
    inputs = entry.inputs(kind, side)
    ids, mask = inputs["input_ids"], entry.user_words(inputs)
    assert not (mask & entry.visual(inputs)).any()
    assert not any(token in entry.special_ids for token in ids[mask].tolist())
    # MiniCPM-V's videos are frames, with words between them as between images.
    between = {"two_images": 2, "image_and_video": 2, "video": 2}.get(kind, 0)
    single = entry.samples(kind)
    for row, sample in enumerate(single):
        expected = RECIPE_WORDS[kind][row] + (between if len(sample.media) > 1 else 0)
        assert int(mask[row].sum()) == expected
    if name not in ("idefics3", "smolvlm"):
        assert ((ids >= FIRST_WORD) & ~mask).any(), "the system prompt has words as well"


RECIPE_WORDS = {
    "single": [5],
    "ragged": [4, 9, 6],
    "two_images": [4, 7],
    "text_only": [6, 9],
    "mixed": [8, 5],
    "video": [5, 8],
    "image_and_video": [4, 6],
}


@every_case_with_media
def test_newline_positions_equal_model_positions(name: str, kind: str) -> None:
    """Newline tokens do not change with the pixels; no other visual token stays the same."""
    entry, model = ZOO[name], model_of(name)
    samples = entry.samples(kind)
    repainted = samples
    for index in range(max(len(sample.media) for sample in samples)):
        repainted = [s.repainted(index) if len(s.media) > index else s for s in repainted]
    inputs = entry.collate(samples)
    first, second = (_block_input(model, entry.collate(each)) for each in (samples, repainted))
    visual, newline = entry.visual(inputs), entry.newline(inputs)
    same = (first - second).abs().amax(-1) < 1e-6
    assert torch.equal(same & visual, newline if newline is not None else nothing(inputs))
    has_newline = any(span.layout.newline_offsets() for span in entry.spans(inputs))
    assert (newline is not None) == has_newline
    has_class = name == "video_llava" and "pixel_values_videos" in inputs
    assert (entry.class_tokens(inputs) is not None) == has_class


@pytest.mark.parametrize("kind", ["video", "image_and_video"])
@every_side
def test_class_tokens_equal_projected_class_tokens(kind: str, side: Side) -> None:
    entry, model = ZOO["video_llava"], model_of("video_llava")
    inputs = entry.inputs(kind, side)
    positions = entry.class_tokens(inputs)
    assert positions is not None
    base: Any = model.model
    frames = inputs["pixel_values_videos"].flatten(0, 1)
    with torch.no_grad():
        states = base.video_tower(frames, output_hidden_states=True).hidden_states
        expected = base.multi_modal_projector(states[model.config.vision_feature_layer][:, 0])
    assert difference(_block_input(model, inputs)[positions], expected) < TOLERANCE


def _block_input(model: PreTrainedModel, inputs: Inputs) -> Tensor:
    seen: list[Tensor] = []
    block = decoder_blocks(model)[0]
    handle = block.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits_of(model, inputs)
    handle.remove()
    return seen[0]


@every_case
def test_oracle_that_drops_nothing_is_the_model(name: str, kind: str) -> None:
    model, inputs = model_of(name), ZOO[name].inputs(kind, "left")
    real = inputs["attention_mask"].bool()
    plain = plain_logits(name, kind)
    blocked = blocked_forward(model, inputs, nothing(inputs), 3)
    assert difference(blocked[real], plain[real]) < TOLERANCE


@every_distinct_case
def test_oracle_equal_under_sdpa_and_eager(name: str, kind: str) -> None:
    entry = ZOO[name]
    inputs = entry.inputs(kind, "left")
    dropped = some_visual(entry, inputs)
    kept = inputs["attention_mask"].bool() & ~dropped
    by_sdpa, by_eager = (
        blocked_forward(model_of(name, attention), inputs, dropped, 2)[kept]
        for attention in ("sdpa", "eager")
    )
    assert by_sdpa.isfinite().all()
    assert difference(by_sdpa, by_eager) < TOLERANCE


@pytest.mark.parametrize(("name", "kind"), CUTTABLE)
def test_oracle_equals_taking_the_tokens_out(name: str, kind: str) -> None:
    """Cut the tokens out by hand, one row at a time, and run the remaining blocks."""
    entry, model = ZOO[name], model_of(name)
    for sample in entry.samples(kind):
        inputs = entry.collate([sample])
        dropped = some_visual(entry, inputs)
        seen = _record_pass(model, inputs, ~dropped[0])
        for before_block in (0, 2, 4) if entry.alike is None else (2,):
            blocked = blocked_forward(model, inputs, dropped, before_block)[~dropped]
            cut = _cut_forward(model, *seen, ~dropped[0], before_block)[0]
            assert difference(blocked, cut) < TOLERANCE, before_block


def _record_pass(
    model: PreTrainedModel, inputs: Inputs, kept: Tensor
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """What the decoder was given, and what each of its blocks was given for the kept tokens."""
    deepstack: dict[str, Any] = {}
    cut: dict[int, dict[str, Any]] = {}

    def record_text_model(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        deepstack.update(kwargs)

    def record_layer(number: int, _: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        mask, kinds = kwargs["attention_mask"], kwargs.get("moe_mm_token_type_ids")
        if block_kinds(model)[number] in RECURRENT:
            mask = None
        else:
            own = None if mask is None else mask[:, :, kept][..., kept]
            mask = additive_mask(kept[None, kept], args[0].dtype, own)
        rotations = kwargs["position_embeddings"]  # some blocks of Cohere Compass have none
        cut[number] = {
            "states": [None if each is None else each[:, kept] for each in args],
            "attention_mask": mask,
            "position_embeddings": rotations and tuple(part[:, kept] for part in rotations),
        }
        if kinds is not None:
            cut[number]["moe_mm_token_type_ids"] = kinds[:, kept]
        if "shared_kv_states" in kwargs:  # Gemma 4
            cut[number]["shared_kv_states"] = {}

    decoder, blocks = text_model(model), decoder_blocks(model)
    handles = [decoder.register_forward_pre_hook(record_text_model, with_kwargs=True)]
    for number, block in enumerate(blocks):
        see = partial(record_layer, number)
        handles.append(block.register_forward_pre_hook(see, with_kwargs=True))
    logits_of(model, inputs)
    for handle in handles:
        handle.remove()
    return deepstack, cut


def _cut_forward(
    model: PreTrainedModel,
    deepstack: dict[str, Any],
    cut: dict[int, dict[str, Any]],
    kept: Tensor,
    before_block: int,
) -> Tensor:
    """Run the blocks from `before_block` on with the kept tokens alone."""
    decoder, blocks = text_model(model), decoder_blocks(model)
    features = deepstack.get("deepstack_visual_embeds") or []
    before_blocks = deepstack.get("deepstack_features") or {}
    with torch.no_grad():
        states = cut[before_block]["states"][0]
        for index in range(before_block, len(blocks)):
            settings = {**cut[index]}
            _, *others = settings.pop("states")
            if index > before_block and index in before_blocks:
                visual = deepstack["vision_mask"].squeeze(-1)
                states[visual[:, kept]] += before_blocks[index][kept[visual[0]]]
            states = blocks[index](states, *others, **settings)
            if index < len(features):
                visual = deepstack["visual_pos_masks"]
                states[visual[:, kept]] += features[index][kept[visual[0]]]
        norm = "norm" if hasattr(decoder, "norm") else "embedding_norm"
        logits: Tensor = model.get_submodule("lm_head")(decoder.get_submodule(norm)(states))
    text: Any = model.config.get_text_config()
    if hasattr(text, "output_multiplier"):  # Muse
        cap = text.final_logit_softcapping
        logits = cap * (logits * text.output_multiplier / cap).tanh()
    return logits


@every_name
def test_every_visual_token_matters(name: str) -> None:
    """Dropping any one visual token changes the last logits; so does dropping it later."""
    entry, model = ZOO[name], model_of(name)
    sample = entry.samples("single")[0]
    positions = entry.visual(entry.collate([sample]))[0].nonzero().flatten()
    inputs = entry.collate([sample] * len(positions))
    dropped = nothing(inputs)
    dropped[torch.arange(len(positions)), positions] = True
    plain = plain_logits(name, "single")[0, -1]
    for before_block in (0, 4):
        last = blocked_forward(model, inputs, dropped, before_block)[:, -1]
        assert float((last - plain).abs().amax(1).min()) > CLEAR


@every_name
def test_pixels_under_one_token_change_the_logits(name: str) -> None:
    entry, model = ZOO[name], model_of(name)
    sample = entry.samples("single")[0]
    plain = plain_logits(name, "single")[0, -1]
    grid = sample.media[0].layout
    rows, columns = (grid if isinstance(grid, tuple) else grid.base)[1:]
    for token in (0, rows * columns // 2, rows * columns - 1):
        changed = logits_of(model, entry.collate([sample.repainted(0, token)]))[0, -1]
        assert difference(plain, changed) > CLEAR


@every_case_with_media
def test_a_medium_that_is_dropped_leaves_nothing(name: str, kind: str) -> None:
    """Drop every token of one medium: other pixels in it change nothing, else they do."""
    entry, model = ZOO[name], model_of(name)
    samples = entry.samples(kind)
    inputs = entry.collate(samples)
    row = next(index for index, sample in enumerate(samples) if sample.media)
    span = next(span for span in entry.spans(inputs) if span.row == row)
    dropped = nothing(inputs)
    dropped[row, span.positions] = True
    kept = inputs["attention_mask"].bool() & ~dropped
    other = [*samples[:row], samples[row].repainted(0), *samples[row + 1 :]]
    changed = entry.collate(other)
    before, after = (blocked_forward(model, each, dropped, 0)[kept] for each in (inputs, changed))
    assert difference(before, after) < TOLERANCE
    later = [blocked_forward(model, each, dropped, 1)[kept] for each in (inputs, changed)]
    assert difference(*later) > CLEAR


@pytest.mark.parametrize("name", DISTINCT)
def test_dropping_in_steps_adds_up(name: str) -> None:
    entry, model = ZOO[name], model_of(name)
    inputs = entry.inputs("ragged", "left")
    first, second = (some_visual(entry, inputs, seed) for seed in (1, 2))
    at_once = blocked_forward(model, inputs, first | second, 2)
    in_steps = blocked_forward_schedule(model, inputs, {1: first, 3: second})
    together = blocked_forward_schedule(model, inputs, {2: first, 3: second & first})
    kept = inputs["attention_mask"].bool() & ~(first | second)
    assert difference(at_once[kept], in_steps[kept]) > CLEAR
    only_first = blocked_forward(model, inputs, first, 2)
    assert difference(together[kept], only_first[kept]) == 0


@every_name
def test_unpruned_cached_decoding_equals_recomputation(name: str) -> None:
    """What the runtime will be held to holds for the unpruned model, with a ragged batch."""
    model, inputs = model_of(name), ZOO[name].inputs("ragged", "left")
    steps = 4
    out: Any = model.generate(  # type: ignore[operator]
        **inputs,
        max_new_tokens=steps,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    generated = out.sequences[:, -steps:]
    expected = recompute_decode(model, inputs, generated[:, :-1])
    assert difference(torch.stack(out.logits, 1), expected) < 2 * TOLERANCE  # 1.07e-5 was seen
    assert torch.equal(best_words(model, expected), generated)


@every_case
def test_token_types_and_ids_match_config(name: str, kind: str) -> None:
    entry, config = ZOO[name], model_of(name).config
    inputs = entry.inputs(kind)
    assert config.image_token_id == entry.image_token_id == IMAGE
    if entry.video_token_id is not None:
        assert config.video_token_id == entry.video_token_id == VIDEO
    if "mm_token_type_ids" in inputs:
        assert torch.equal(inputs["mm_token_type_ids"] > 0, entry.visual(inputs))


@every_name
def test_unsupported_input_kind_raises(name: str) -> None:
    with pytest.raises(ValueError, match="has no inputs of kind 'hologram'"):
        ZOO[name].inputs("hologram")
