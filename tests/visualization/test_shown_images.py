"""The part of a image that the model sees, against what the real processors make of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import CLIPImageProcessor, LlavaNextImageProcessor
from transformers.models.llava import LlavaImageProcessor

from tokencover.visualization import as_seen

CROP = {"height": 64, "width": 64}


def striped(width: int, height: int) -> Image.Image:
    """A image that looks different everywhere, smooth enough to be scaled."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([across, down, 255 - across], -1).astype(np.uint8))


@pytest.mark.parametrize("size", [(200, 100), (100, 180), (128, 128)])
@pytest.mark.parametrize(
    "processor",
    [
        CLIPImageProcessor(size={"shortest_edge": 64}, crop_size=CROP),
        CLIPImageProcessor(size={"shortest_edge": 80}, crop_size=CROP),
        CLIPImageProcessor(size={"shortest_edge": 48}, crop_size=CROP),
        CLIPImageProcessor(size=CROP, crop_size=CROP),
        CLIPImageProcessor(size=CROP, do_center_crop=False),
        LlavaImageProcessor(size={"shortest_edge": 64}, crop_size=CROP, do_pad=True),
    ],
    ids=["short side", "with a rim", "smaller than the crop", "stretched", "no crop", "padded"],
)
def test_it_is_what_the_processor_shows(processor: Any, size: tuple[int, int]) -> None:
    image = striped(*size)
    values = processor(image, do_normalize=False, return_tensors="np")["pixel_values"][0]
    seen = as_seen(image, processor).convert("RGB").resize((64, 64), Image.Resampling.BICUBIC)
    difference = np.abs(values.transpose(1, 2, 0) * 255 - np.asarray(seen, dtype=np.float32))
    assert difference.mean() < 3


def test_a_tiled_image_is_seen_whole() -> None:
    processor = LlavaNextImageProcessor()
    image = striped(200, 100)
    assert as_seen(image, processor).size == (200, 100)
