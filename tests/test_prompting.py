"""What processors are given."""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from tokencover.errors import InputError
from tokencover.prompting import list_kinds, make_inputs
from tokencover_models.pebble import load_pebble
from tokencover_models.pebble.model import ClipProcessor

PICTURE = Image.new("RGB", (96, 96), "navy")
CLIP = (PICTURE,) * 8


class Recorder:
    """Has a part for images and one for videos, as processors of transformers do."""

    image_processor = video_processor = None

    def apply_chat_template(self, chat: Any, add_generation_prompt: bool) -> str:
        assert add_generation_prompt
        return " ".join(part.get("text", part["type"]) for part in chat[0]["content"])

    def __call__(self, **given: Any) -> dict[str, Any]:
        return given


def test_what_processors_take() -> None:
    assert list_kinds(load_pebble()[1]) == {"image"}
    assert list_kinds(ClipProcessor()) == {"video"}
    assert list_kinds(Recorder()) == {"image", "video"}


def test_images_are_nested_and_videos_are_flat() -> None:
    given = make_inputs(Recorder(), [([PICTURE, CLIP], "one ?"), ([CLIP], "two ?"), ([], "three")])
    assert given["text"] == ["image video one ?", "video two ?", "three"]
    assert given["images"] == [[PICTURE], [], []]
    assert given["videos"] == [list(CLIP), list(CLIP)]
    assert given["padding"]


def test_all_given_frames_are_shown() -> None:
    assert make_inputs(Recorder(), [([CLIP], "one ?")])["do_sample_frames"] is False


def test_what_is_not_shown_is_not_mentioned() -> None:
    assert set(make_inputs(Recorder(), [([], "one ?")])) == {"text", "padding", "return_tensors"}
    assert "videos" not in make_inputs(Recorder(), [([PICTURE], "one ?")])
    assert "images" not in make_inputs(Recorder(), [([CLIP], "one ?")])


@pytest.mark.parametrize(
    ("processor", "medium", "message"),
    [
        (ClipProcessor(), PICTURE, "takes no images.*for example --model pebble,"),
        (load_pebble()[1], CLIP, "takes no videos.*for example --model pebble-clips,"),
    ],
)
def test_unsupported_model_input_raises(processor: Any, medium: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_inputs(processor, [([medium], "what ?")])


def test_processor_without_chat_template_raises() -> None:
    _, processor = load_pebble()
    processor.chat_template = processor.tokenizer.chat_template = None
    with pytest.raises(InputError, match=r"chat_template\.jinja"):
        make_inputs(processor, [([PICTURE], "how many ?")])
