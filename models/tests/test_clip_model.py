from pathlib import Path

import pytest
import torch
from transformers import VideoLlavaForConditionalGeneration

from research.pebble_training import (
    ClipLearner,
    LookupLearner,
    PebbleTrainingSettings,
    Schedule,
    Stage,
    answer_questions,
    encode_videos,
    make_clip_batch,
    train,
)
from research.pebble_training.lookup_starting_weights import LOOKUP_BLOCKS
from tokencover.errors import InputError
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.data import CLIP_QUESTIONS, draw_clip, make_clip
from tokencover_models.pebble.model import (
    CheckpointError,
    ClipProcessor,
    load_clip_checkpoint,
    make_prompt,
    normalise_clip,
)
from tokencover_models.pebble.vocabulary import (
    CLIP_WORD_IDS,
    CLIP_WORDS,
    COLUMN_WORDS,
    FRAMES,
    PICTURE_WORD_IDS,
    ROW_WORDS,
    VIDEO,
)

SEED = 10_000_000
TINY = Schedule(
    (
        Stage("vision", "vision", 1, 1, vision_rate=1e-4),
        Stage("words", "words", 1, 1, rate=1e-4, visual_tokens=136),
        Stage("joint", "joint", 2, 1, rate=1e-4, vision_rate=1e-4, blind=0.5),
    ),
    kinds=("when", "place"),
    extra=("order",),
)


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> ClipLearner:
    folder, first = tmp_path_factory.mktemp("lookup"), LookupLearner()
    first.save(first.start(0), folder)
    return ClipLearner(folder)


@pytest.fixture(scope="module")
def starting_model(learner: ClipLearner) -> VideoLlavaForConditionalGeneration:
    model = learner.start(0)
    model.eval()
    return model


def test_it_starts_from_the_look_up_model(
    learner: ClipLearner, starting_model: VideoLlavaForConditionalGeneration
) -> None:
    picture, _ = load_pebble(learner.lookup_folder)
    known, words = (
        picture.get_input_embeddings().weight,
        starting_model.get_input_embeddings().weight,
    )
    assert isinstance(known, torch.Tensor)
    assert isinstance(words, torch.Tensor)
    frames = {(*ROW_WORDS, *COLUMN_WORDS)[i]: frame for i, frame in enumerate(FRAMES)}
    for word, index in PICTURE_WORD_IDS.items():
        if word in frames:
            assert torch.equal(words[CLIP_WORD_IDS[frames[word]], 1:], known[index, 1:])
        else:
            assert torch.equal(words[index], known[index])
    assert len(words.unique(dim=0)) == len(words)
    changed = set()
    for name, weight in picture.model.language_model.layers.named_parameters():
        if not torch.equal(weight, starting_model.model.language_model.layers.get_parameter(name)):
            changed.add(name)
    (block,) = LOOKUP_BLOCKS
    assert changed == {f"{block}.self_attn.{part}_proj.weight" for part in "qkvo"}


def test_one_head_starts_by_looking_at_the_counter(
    starting_model: VideoLlavaForConditionalGeneration,
) -> None:
    pixels = normalise_clip(draw_clip(make_clip(77)))
    starting_model.set_attn_implementation("eager")
    with torch.inference_mode():
        seen = starting_model.model.video_tower(pixels, output_attentions=True)
    starting_model.set_attn_implementation("sdpa")
    assert float(seen.attentions[2][:, 0, :, 1].min()) > 0.5


def test_the_processor_fills_every_place(
    starting_model: VideoLlavaForConditionalGeneration,
) -> None:
    processor = ClipProcessor()
    frames = draw_clip(make_clip(0))
    texts = [
        make_prompt("which frame is empty ?", VIDEO),
        make_prompt("when is the cat seen ?", VIDEO),
    ]
    inputs = processor(texts, [frames, frames], padding=True)
    assert (inputs["input_ids"] == CLIP_WORD_IDS[VIDEO]).sum(1).tolist() == [1160, 1160]
    assert inputs["pixel_values_videos"].shape == (2, 8, 3, 96, 96)
    with torch.inference_mode():
        assert starting_model(**inputs).logits.shape[-1] == len(CLIP_WORDS)


def test_a_chat_and_a_prompt_are_the_same_tokens() -> None:
    processor = ClipProcessor()
    parts = [{"type": "video"}, {"type": "text", "text": "which frame is empty ?"}]
    chat = processor.apply_chat_template(
        [{"role": "user", "content": parts}], add_generation_prompt=True
    )
    asked = make_prompt("which frame is empty ?", VIDEO)
    assert processor.tokenizer(chat).input_ids == processor.tokenizer(asked).input_ids


def test_packed_questions_get_the_stock_models_logits(
    starting_model: VideoLlavaForConditionalGeneration,
) -> None:
    batch = make_clip_batch([SEED], CLIP_QUESTIONS.kinds, 1160)
    processor = ClipProcessor()
    with torch.inference_mode():
        visual = encode_videos(starting_model, batch.pixels)
        packed = answer_questions(starting_model, visual, batch.pack, early_sight=True)
        for slot in (0, 7):
            question = batch.questions[0][slot]
            inputs = processor(make_prompt(question.text, VIDEO), [draw_clip(make_clip(SEED))])
            alone = starting_model(**inputs).logits[0, -1]
            place = len(question.text.split())
            assert torch.allclose(packed[0, slot, place], alone, atol=1e-4)


def test_fewer_visual_tokens_always_include_things_and_animals() -> None:
    clip = make_clip(SEED)
    kept = set(make_clip_batch([SEED], ["place"], 136).pack.positions[0].tolist())
    assert len(kept) == 136
    for frame in range(8):
        spots = [(thing.row, thing.column) for thing in clip.things_in(frame)]
        spots += [(animal.row, animal.column) for animal in clip.animals_in(frame)]
        assert {frame * 145 + 1 + row * 12 + column for row, column in spots} <= kept


def test_a_resumed_run_ends_with_the_same_weights_and_loads(
    learner: ClipLearner, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {"seed": 3, "workers": 1, "schedule": TINY, "learner": learner}
    train(PebbleTrainingSettings(out=whole, **options))  # type: ignore[arg-type]
    train(PebbleTrainingSettings(out=parts, stop_after=3, **options))  # type: ignore[arg-type]
    train(PebbleTrainingSettings(out=parts, **options), resume=True)  # type: ignore[arg-type]
    first, processor = load_clip_checkpoint(whole / "checkpoint")
    second = VideoLlavaForConditionalGeneration.from_pretrained(parts / "checkpoint")
    for name, weight in first.named_parameters():
        assert torch.equal(weight, second.get_parameter(name)), name
    towers = first.model
    for name, weight in towers.video_tower.named_parameters():
        assert torch.equal(weight, towers.image_tower.get_parameter(name))
    assert processor.tokenizer.get_vocab() == CLIP_WORD_IDS


@pytest.mark.parametrize(
    ("text", "clips", "message"),
    [
        (make_prompt("which frame is empty ?", VIDEO), 0, "times, and 0"),
        ("which frame is empty ?", 1, "0 times"),
    ],
)
def test_texts_and_clips_must_fit(text: str, clips: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClipProcessor()(text, [draw_clip(make_clip(0))] * clips)


def test_a_clip_has_eight_frames() -> None:
    with pytest.raises(InputError, match="got 7"):
        normalise_clip(draw_clip(make_clip(0))[:7])


def test_only_torch_tensors_are_made() -> None:
    with pytest.raises(InputError, match="np"):
        ClipProcessor()("which place is this ?", return_tensors="np")


def test_frames_of_another_size_are_resized() -> None:
    frames = draw_clip(make_clip(0))
    large = [frame.resize((192, 192)) for frame in frames]
    assert normalise_clip(large).shape == (8, 3, 96, 96)


def test_a_missing_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json.*--clips"):
        load_clip_checkpoint(tmp_path)
