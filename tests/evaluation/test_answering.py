import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from tokencover.errors import InputError
from tokencover.evaluation import Example, VisionLanguageModel, load_model
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.runner import GenerationSettings, score
from tokencover.evaluation.scoring import score_exact
from tokencover.evaluation.tasks import Task
from tokencover.methods import MoB
from tokencover_models.pebble import PICTURE_CHECKPOINT as SHIPPED

PICTURE = Image.new("RGB", (192, 192), "navy")


def example(number: int, pictures: int) -> Example:
    return Example(f"q{number}", (PICTURE,) * pictures, "which place is this ?", ("pond",), "1")


def test_the_room_is_entered_without_transformers() -> None:
    code = (
        "import sys, tokencover.evaluation, tokencover.evaluation.report\n"
        "sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_options_reach_the_model() -> None:
    assert load_model("pebble", dtype="float64").model.dtype == torch.float64


def test_a_folder_is_a_model(pebble: VisionLanguageModel) -> None:
    loaded = load_model(str(SHIPPED))
    asked = [example(0, 1)]
    assert loaded.answer(loaded.make_inputs(asked)) == pebble.answer(pebble.make_inputs(asked))


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be loaded"):
        load_model(str(tmp_path))
    with pytest.raises(InputError, match="no dtype 'float17'"):
        load_model("pebble", dtype="float17")


@pytest.mark.parametrize("counts", [(1, 2), (0,), (1, 0), (0, 1, 0)])
def test_any_number_of_pictures(pebble: VisionLanguageModel, counts: tuple[int, ...]) -> None:
    asked = [example(number, pictures) for number, pictures in enumerate(counts)]
    task = Task("mixed", "all", lambda: iter(asked), score_exact)
    for method, left in ((None, 576), (MoB(64), 64)):
        records = score(pebble, Scoring(Combination(method), task), GenerationSettings()).records
        expected = [
            pictures * 576 if method is None else left * min(pictures, 1) for pictures in counts
        ]
        assert [each.tokens for each in records] == expected
        assert [each.flops == 1 for each in records] == [
            method is None or pictures == 0 for pictures in counts
        ]


def test_a_prompt_without_pictures_after_one_with(pebble: VisionLanguageModel) -> None:
    asked = [example(0, 1), example(1, 0)]
    task = Task("mixed", "all", lambda: iter(asked), score_exact)
    records = score(
        pebble, Scoring(Combination(MoB(64)), task), GenerationSettings(batch_size=1)
    ).records
    assert [each.tokens for each in records] == [64, 0]
