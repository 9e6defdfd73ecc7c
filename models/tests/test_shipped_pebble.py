import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor, LlavaForConditionalGeneration, LlavaProcessor

import tokencover as tc
from research.study.answer_tables import average_kinds, compare_tables, make_table
from research.study.pebble_class_token import mark_patches, measure_share
from research.study.plain_pruning import (
    SELECTORS,
    answer,
    drop_tokens,
    make_selector,
    measure_accuracy,
)
from research.twig.pebble import reply as reply_pruned
from tokencover.errors import TokenCoverError
from tokencover_models.pebble import PICTURE_CHECKPOINT, load_pebble
from tokencover_models.pebble.data import (
    PictureExample,
    draw_scene,
    list_seeds,
    make_examples,
    make_scene,
)
from tokencover_models.pebble.model import (
    VISION_FEATURE_LAYER,
    CheckpointError,
    make_prompt,
    normalise_pictures,
)

Pebble = tuple[LlavaForConditionalGeneration, LlavaProcessor]


@pytest.fixture(scope="module")
def pebble() -> Pebble:
    return load_pebble()


@pytest.fixture(scope="module")
def answered(pebble: Pebble) -> list[tuple[PictureExample, str]]:
    """Questions about some scenes, with the answers of the unpruned model."""
    return answer(*pebble, make_examples("validation", scenes=6))


def test_it_is_small_and_as_deep_as_its_card_says(pebble: Pebble) -> None:
    assert sum(path.stat().st_size for path in PICTURE_CHECKPOINT.iterdir()) < 30e6
    card = (PICTURE_CHECKPOINT / "README.md").read_text()
    assert len(pebble[0].model.language_model.layers) == 11
    assert "11 blocks" in card
    assert f"{sum(weight.numel() for weight in pebble[0].parameters()) / 1e6:.1f} million" in card


def test_it_answers_well_on_a_sample(answered: list[tuple[PictureExample, str]]) -> None:
    shares = measure_accuracy(answered)
    assert sum(shares.values()) / len(shares) > 0.95


def test_its_class_token_looks_at_objects() -> None:
    tower: Any = load_pebble()[0].model.vision_tower
    tower.set_attn_implementation("eager")
    for seed in list_seeds("validation", 3):
        scene = make_scene(seed)
        objects, _ = mark_patches(scene)
        with torch.inference_mode():
            seen = tower(normalise_pictures([draw_scene(scene)]), output_attentions=True)
        assert objects.mean() < 0.1
        assert measure_share(seen.attentions[VISION_FEATURE_LAYER], objects) > 0.5


def test_it_takes_tokens_numbered_anew_as_well_as_those_that_keep_their_numbers(
    pebble: Pebble,
) -> None:
    asked = list(make_examples("validation", scenes=3))
    right = {}
    for positions in ("original", "reindex"):
        method = tc.get_method("divprune", budget=130, positions=positions)
        right[positions] = sum(
            example.answer == word for example, word in reply_pruned(*pebble, asked, method)
        )
    assert abs(right["original"] - right["reindex"]) <= 0.05 * len(asked), right


def test_generate_gives_the_same_answers(pebble: Pebble) -> None:
    model: Any = pebble[0]
    processor: Any = pebble[1]
    for example, reply in answer(*pebble, list(make_examples("validation", scenes=1))[:4]):
        inputs = processor(
            images=example.picture, text=make_prompt(example.question), return_tensors="pt"
        )
        tokens = model.generate(**inputs)[0, inputs["input_ids"].shape[1] :]
        assert processor.decode(tokens, skip_special_tokens=True) == reply


def test_it_loads_by_plain_transformers(pebble: Pebble) -> None:
    stock = LlavaForConditionalGeneration.from_pretrained(PICTURE_CHECKPOINT)
    auto: Any = AutoProcessor
    assert isinstance(auto.from_pretrained(PICTURE_CHECKPOINT), LlavaProcessor)
    for name, weight in pebble[0].named_parameters():
        assert torch.equal(weight, stock.get_parameter(name))


def test_keeping_every_token_changes_no_answer(pebble: Pebble) -> None:
    asked = list(make_examples("validation", scenes=1))[:7]
    whole = [reply for _, reply in answer(*pebble, asked)]
    for method in SELECTORS:
        kept = answer(*pebble, asked, make_selector(method, 576))
        assert [reply for _, reply in kept] == whole, method


@pytest.mark.parametrize("method", SELECTORS)
@pytest.mark.parametrize("budget", [1, 7, 64, 192])
def test_selectors_keep_exactly_the_budget(method: str, budget: int) -> None:
    rng = torch.Generator().manual_seed(0)
    visual, words = torch.randn(576, 16, generator=rng), torch.randn(5, 16, generator=rng)
    chosen = make_selector(method, budget)(visual, words)
    assert len(set(chosen.tolist())) == budget
    assert 0 <= min(chosen) <= max(chosen) < 576


def test_dropping_leaves_nothing_behind(pebble: Pebble) -> None:
    model = pebble[0]
    with drop_tokens(model, make_selector("grid", 64), after=1):
        pass
    layers = model.model.language_model.layers
    assert not any(layer._forward_pre_hooks for layer in layers)


def test_random_pruning_hurts(pebble: Pebble, answered: list[tuple[PictureExample, str]]) -> None:
    asked = [example for example, _ in answered]
    kinds = tuple(dict.fromkeys(example.kind for example in asked))
    whole = make_table(answered, kinds)
    pruned = make_table(answer(*pebble, asked, make_selector("random", 64)), kinds)
    loss = compare_tables(whole, pruned, draws=200)
    assert loss.low <= loss.mean <= loss.high
    assert loss.mean == pytest.approx(average_kinds(whole) - average_kinds(pruned))
    assert loss.mean > 0.1


def test_an_impossible_block_is_refused(pebble: Pebble) -> None:
    with (
        pytest.raises(TokenCoverError, match="after"),
        drop_tokens(pebble[0], make_selector("grid", 4), after=0),
    ):
        pass


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(TokenCoverError, match="magic"):
        make_selector("magic", 8)


def test_unequal_tables_are_refused() -> None:
    with pytest.raises(TokenCoverError, match="paired"):
        compare_tables(make_table([], ["a"]), make_table([], ["a", "b"]))


def test_a_missing_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json.*train"):
        load_pebble(tmp_path)


def test_a_cut_checkpoint_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "cut"
    shutil.copytree(PICTURE_CHECKPOINT, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="damaged"):
        load_pebble(folder)


def test_a_checkpoint_without_some_weights_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "partial"
    shutil.copytree(PICTURE_CHECKPOINT, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "embed_tokens" in name)
    save_file(
        {key: value for key, value in weights.items() if key != name},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(CheckpointError, match="no usable weights"):
        load_pebble(folder)


@pytest.mark.parametrize("method", ["mob", "nearest", "farthest"])
def test_the_runtime_gives_the_same_logits_as_plain_hooks(pebble: Pebble, method: str) -> None:
    model, processor = pebble
    for example in list(make_examples("validation", scenes=1))[::3]:
        inputs = processor(
            images=example.picture, text=make_prompt(example.question), return_tensors="pt"
        )
        with torch.inference_mode(), drop_tokens(model, make_selector(method, 64), after=1):
            expected = model(**inputs, use_cache=False, logits_to_keep=1).logits
        chosen = tc.get_method(method, budget=64, after=1)
        with torch.inference_mode(), tc.prune(model, chosen, processor=processor):
            found = model(**inputs, logits_to_keep=1).logits
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
