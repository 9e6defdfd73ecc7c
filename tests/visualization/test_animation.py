"""The moving image shows tokens in the order of their choice, and ends with all of them."""

import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

import tokencover as tc
from tokencover.errors import InputError
from tokencover.prompting import make_inputs
from tokencover.pruning import Trace
from tokencover.visualization import animate_choice, overlay
from tokencover_models.pebble.data import draw_scene, make_scene


@pytest.fixture(scope="module")
def shown() -> tuple[Image.Image, Trace]:
    model, processor = tc.load_pebble()
    image = draw_scene(make_scene(0))
    inputs = make_inputs(processor, [([image], "where is the red star ?")])
    with tc.prune(model, tc.MoB(24), processor=processor) as run:
        model(**inputs)
    return image, run.trace[0]


def read_frames(film: bytes) -> list[np.ndarray]:
    opened = Image.open(io.BytesIO(film))
    return [
        np.asarray(frame.convert("RGB")).astype(int) for frame in ImageSequence.Iterator(opened)
    ]


def list_framed(frame: np.ndarray, faded: np.ndarray) -> set[tuple[int, int]]:
    """Tokens that look otherwise than in the faded image."""
    size = frame.shape[0] // 24
    other = np.abs(frame - faded).max(-1).reshape(24, size, 24, size).max((1, 3)) > 40
    return {(int(row), int(column)) for row, column in np.argwhere(other)}


def test_tokens_appear_prompt_centers_first(shown: tuple[Image.Image, Trace]) -> None:
    image, trace = shown
    frames = read_frames(animate_choice(image, trace, steps=24))
    order = [*trace.prompt_centers.tolist(), *trace.visual_centers.tolist()]
    assert len(frames) == len(order) + 1
    for count in (1, len(trace.prompt_centers), len(order)):
        places = {(index // 24, index % 24) for index in order[:count]}
        assert list_framed(frames[count], frames[0]) == places


def test_the_end_is_the_still_image(shown: tuple[Image.Image, Trace]) -> None:
    image, trace = shown
    last = read_frames(animate_choice(image, trace, steps=3))[-1]
    still = overlay(image, trace).resize(last.shape[1::-1], Image.Resampling.NEAREST)
    # GIF has 256 colors; the frames are two pixels wide in both.
    assert np.abs(last - np.asarray(still).astype(int)).mean() < 6


def test_animation_without_order_or_steps_raises(
    shown: tuple[Image.Image, Trace],
) -> None:
    image, trace = shown
    with pytest.raises(InputError, match="got 0"):
        animate_choice(image, trace, steps=0)
    untold = Trace(**{**{name: getattr(trace, name) for name in trace.__slots__}, "details": {}})
    with pytest.raises(InputError, match="order of its choice"):
        animate_choice(image, untold)
