from pathlib import Path

import pytest
import torch
from transformers import VideoLlavaForConditionalGeneration

from tokencover.errors import InputError
from tokencover.pebble.clips.clip import make_clip
from tokencover.pebble.clips.drawing import draw_clip
from tokencover.pebble.clips.loader import load_pebble_clips
from tokencover.pebble.clips.processor import ClipProcessor, clip_pixels
from tokencover.pebble.clips.questions import KINDS
from tokencover.pebble.clips.subject import Clips
from tokencover.pebble.loader import CheckpointError, load_pebble
from tokencover.pebble.packing import answer_logits
from tokencover.pebble.stages import Plan, Stage
from tokencover.pebble.starting import LOOKUP_BLOCKS
from tokencover.pebble.tokenizer import prompt
from tokencover.pebble.training import Settings, train
from tokencover.pebble.vocabulary import (
    CLIP_WORD_IDS,
    CLIP_WORDS,
    COLUMNS,
    FRAMES,
    ROWS,
    VIDEO,
    WORD_IDS,
)

SEED = 10_000_000
SUBJECT = Clips()
TINY = Plan(
    (
        Stage("vision", "vision", 1, 1, vision_rate=1e-4),
        Stage("words", "words", 1, 1, rate=1e-4, visual_tokens=136),
        Stage("joint", "joint", 2, 1, rate=1e-4, vision_rate=1e-4, blind=0.5),
    ),
    kinds=("when", "place"),
    extra=("order",),
)


@pytest.fixture(scope="module")
def grown() -> VideoLlavaForConditionalGeneration:
    model = SUBJECT.start(0)
    model.eval()
    return model


def test_it_starts_from_the_picture_model(grown: VideoLlavaForConditionalGeneration) -> None:
    picture, _ = load_pebble()
    known, words = picture.get_input_embeddings().weight, grown.get_input_embeddings().weight
    assert isinstance(known, torch.Tensor)
    assert isinstance(words, torch.Tensor)
    frames = {(*ROWS, *COLUMNS)[i]: frame for i, frame in enumerate(FRAMES)}
    for word, index in WORD_IDS.items():
        if word in frames:
            assert torch.equal(words[CLIP_WORD_IDS[frames[word]], 1:], known[index, 1:])
        else:
            assert torch.equal(words[index], known[index])
    assert len(words.unique(dim=0)) == len(words)
    changed = set()
    for name, weight in picture.model.language_model.layers.named_parameters():
        if not torch.equal(weight, grown.model.language_model.layers.get_parameter(name)):
            changed.add(name)
    (block,) = LOOKUP_BLOCKS
    assert changed == {f"{block}.self_attn.{part}_proj.weight" for part in "qkvo"}


def test_one_head_starts_by_looking_at_the_counter(
    grown: VideoLlavaForConditionalGeneration,
) -> None:
    pixels = clip_pixels(draw_clip(make_clip(77)))
    grown.set_attn_implementation("eager")
    with torch.inference_mode():
        seen = grown.model.video_tower(pixels, output_attentions=True)
    grown.set_attn_implementation("sdpa")
    assert float(seen.attentions[2][:, 0, :, 1].min()) > 0.5


def test_the_processor_fills_every_place(grown: VideoLlavaForConditionalGeneration) -> None:
    processor = ClipProcessor()
    frames = draw_clip(make_clip(0))
    texts = [prompt("which frame is empty ?", VIDEO), prompt("when is the cat seen ?", VIDEO)]
    inputs = processor(texts, [frames, frames], padding=True)
    assert (inputs["input_ids"] == CLIP_WORD_IDS[VIDEO]).sum(1).tolist() == [1160, 1160]
    assert inputs["pixel_values_videos"].shape == (2, 8, 3, 96, 96)
    with torch.inference_mode():
        assert grown(**inputs).logits.shape[-1] == len(CLIP_WORDS)


def test_a_chat_and_a_prompt_are_the_same_tokens() -> None:
    processor = ClipProcessor()
    parts = [{"type": "video"}, {"type": "text", "text": "which frame is empty ?"}]
    chat = processor.apply_chat_template(
        [{"role": "user", "content": parts}], add_generation_prompt=True
    )
    asked = prompt("which frame is empty ?", VIDEO)
    assert processor.tokenizer(chat).input_ids == processor.tokenizer(asked).input_ids


def test_packed_questions_get_the_stock_models_logits(
    grown: VideoLlavaForConditionalGeneration,
) -> None:
    batch = SUBJECT.batch([SEED], KINDS, 1160)
    processor = ClipProcessor()
    words = grown.get_input_embeddings().weight
    assert isinstance(words, torch.Tensor)
    with torch.inference_mode():
        visual, _, _ = SUBJECT.see(grown, batch, words)
        packed = answer_logits(grown, visual, batch.pack, early_sight=True)
        for slot in (0, 7):
            question = batch.questions[0][slot]
            inputs = processor(prompt(question.text, VIDEO), [draw_clip(make_clip(SEED))])
            alone = grown(**inputs).logits[0, -1]
            place = len(question.text.split())
            assert torch.allclose(packed[0, slot, place], alone, atol=1e-4)


def test_fewer_visual_tokens_always_include_things_and_animals() -> None:
    clip = make_clip(SEED)
    kept = set(SUBJECT.batch([SEED], ["place"], 136).pack.positions[0].tolist())
    assert len(kept) == 136
    for frame in range(8):
        spots = [(thing.row, thing.column) for thing in clip.things_in(frame)]
        spots += [(animal.row, animal.column) for animal in clip.animals_in(frame)]
        assert {frame * 145 + 1 + row * 12 + column for row, column in spots} <= kept


def test_a_resumed_run_ends_with_the_same_weights_and_loads(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = {"seed": 3, "workers": 1, "plan": TINY, "subject": SUBJECT}
    train(Settings(out=whole, **options))  # type: ignore[arg-type]
    train(Settings(out=parts, stop_after=3, **options))  # type: ignore[arg-type]
    train(Settings(out=parts, **options), resume=True)  # type: ignore[arg-type]
    first, processor = load_pebble_clips(whole / "checkpoint")
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
        (prompt("which frame is empty ?", VIDEO), 0, "0 clips"),
        ("which frame is empty ?", 1, "0 times"),
    ],
)
def test_texts_and_clips_must_fit(text: str, clips: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClipProcessor()(text, [draw_clip(make_clip(0))] * clips)


def test_a_clip_has_eight_frames() -> None:
    with pytest.raises(InputError, match="got 7"):
        clip_pixels(draw_clip(make_clip(0))[:7])


def test_only_torch_tensors_are_made() -> None:
    with pytest.raises(InputError, match="np"):
        ClipProcessor()("which place is this ?", return_tensors="np")


def test_frames_of_another_size_are_resized() -> None:
    frames = draw_clip(make_clip(0))
    large = [frame.resize((192, 192)) for frame in frames]
    assert clip_pixels(large).shape == (8, 3, 96, 96)


def test_a_missing_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json.*--clips"):
        load_pebble_clips(tmp_path)
