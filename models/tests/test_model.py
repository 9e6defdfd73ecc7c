from typing import Any

import pytest
import torch
from transformers import LlavaForConditionalGeneration

from research.pebble_training import answer_questions, make_picture_batch
from research.pebble_training.lookup_starting_weights import (
    set_starting_weights,
    start_lookup_model,
)
from research.pebble_training.packed_questions import encode_images
from tokencover_models.pebble.data import PICTURE_TOKENS, SCENE_QUESTIONS, draw_scene, make_scene
from tokencover_models.pebble.model import (
    CLIP_BLOCKS,
    make_picture_model,
    make_picture_processor,
    make_picture_tokenizer,
    make_prompt,
    normalise_pictures,
)
from tokencover_models.pebble.vocabulary import IMAGE, PICTURE_WORD_IDS, PICTURE_WORDS, UNKNOWN


@pytest.fixture(scope="module")
def model() -> LlavaForConditionalGeneration:
    started = start_lookup_model(seed=1)
    started.eval()
    return started


def test_every_word_survives_the_tokenizer() -> None:
    tokenizer = make_picture_tokenizer()
    assert len(tokenizer) == len(PICTURE_WORDS)
    for word, index in PICTURE_WORD_IDS.items():
        assert tokenizer.convert_tokens_to_ids(word) == index
        assert tokenizer.decode([index]) == word


def test_sentences_survive_the_tokenizer() -> None:
    tokenizer = make_picture_tokenizer()
    text = "What color is the star marked 7?"
    ids = tokenizer(text).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "what color is the star marked 7 ?"
    assert tokenizer("what is a zebra").input_ids[-1] == PICTURE_WORD_IDS[UNKNOWN]


def test_the_processor_makes_576_places_and_the_model_fills_them(
    model: LlavaForConditionalGeneration,
) -> None:
    processor = make_picture_processor()
    picture = draw_scene(make_scene(0))
    inputs = processor(
        images=picture, text=make_prompt("which place is this ?"), return_tensors="pt"
    )
    assert int((inputs["input_ids"] == PICTURE_WORD_IDS[IMAGE]).sum()) == PICTURE_TOKENS == 576
    assert inputs["pixel_values"].shape == (1, 3, 192, 192)
    with torch.inference_mode():
        features = model.get_image_features(pixel_values=inputs["pixel_values"]).pooler_output
        assert features[0].shape == (576, 128)
        assert model(**inputs).logits.shape == (1, inputs["input_ids"].shape[1], len(PICTURE_WORDS))


def test_a_chat_and_a_prompt_are_the_same_tokens() -> None:
    processor: Any = make_picture_processor()
    parts = [{"type": "image"}, {"type": "text", "text": "which place is this ?"}]
    chat = processor.apply_chat_template(
        [{"role": "user", "content": parts}], add_generation_prompt=True
    )
    assert (
        processor.tokenizer(chat).input_ids
        == processor.tokenizer(make_prompt("which place is this ?")).input_ids
    )


def test_training_pixels_are_the_processors() -> None:
    scene = make_scene(4)
    inputs = make_picture_processor().image_processor(draw_scene(scene), return_tensors="pt")
    assert torch.equal(inputs["pixel_values"], normalise_pictures([draw_scene(scene)]))


def test_packed_questions_get_the_stock_models_logits(
    model: LlavaForConditionalGeneration,
) -> None:
    seed = 10_000_000
    batch = make_picture_batch([seed], SCENE_QUESTIONS.kinds, PICTURE_TOKENS)
    processor = make_picture_processor()
    with torch.inference_mode():
        visual, _ = encode_images(model, batch.pixels)
        packed = answer_questions(model, visual, batch.pack, early_sight=True)
        for slot in (0, 5, 10):
            question = batch.questions[0][slot]
            inputs = processor(
                images=draw_scene(make_scene(seed)),
                text=make_prompt(question.text),
                return_tensors="pt",
            )
            alone = model(**inputs).logits[0, -1]
            place = len(question.text.split())
            assert torch.allclose(packed[0, slot, place], alone, atol=1e-4)


def test_fewer_visual_tokens_always_include_things_and_animals() -> None:
    seed = 10_000_007
    scene = make_scene(seed)
    kept = set(make_picture_batch([seed], ["place"], 64).pack.positions[0].tolist())
    assert len(kept) == 64
    assert {thing.row * 24 + thing.column for thing in scene.things} <= kept
    assert {animal.row * 24 + animal.column for animal in scene.animals} <= kept


def test_the_same_seed_prepares_the_same_weights(model: LlavaForConditionalGeneration) -> None:
    again = make_picture_model(CLIP_BLOCKS)
    set_starting_weights(again, seed=1)
    for name, weight in model.named_parameters():
        if "layers.4" not in name or "language_model" in name:
            assert torch.equal(weight, again.get_parameter(name)), name
