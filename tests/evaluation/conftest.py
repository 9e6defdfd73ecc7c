"""What tests of evaluations share."""

from pathlib import Path

import pytest
import torch

from tests.evaluation.running import image_task
from tokencover.evaluation import VisionLanguageModel, load_model


@pytest.fixture(scope="session")
def pebble() -> VisionLanguageModel:
    torch.set_num_threads(1)
    return load_model("pebble")


@pytest.fixture(scope="session")
def pebble_clips() -> VisionLanguageModel:
    torch.set_num_threads(1)
    return load_model("pebble-clips")


@pytest.fixture
def broken_task(tmp_path: Path) -> Path:
    """A task file; the image file of its second example is not an image."""
    path = image_task(tmp_path / "asked.jsonl", examples=3)
    (tmp_path / "1.png").write_text("nothing to see")
    return path
