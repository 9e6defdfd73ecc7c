"""Evaluations about videos."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from tokencover.budget import Split
from tokencover.budget.split import Coupling, PaperSplit
from tokencover.bundled_models import get_default_tasks
from tokencover.cli.app import main
from tokencover.errors import InputError
from tokencover.evaluation import VisionLanguageModel, load_model, load_tasks
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.runner import GenerationSettings, score
from tokencover.methods import MoB
from tokencover.pruning import prune
from tokencover_models.pebble import CLIP_CHECKPOINT
from tokencover_models.pebble.data import CLIP_QUESTIONS, make_clip_examples

TOKENS = 8 * (1 + 12 * 12)
"""Of a video: eight frames, each with its class token."""


@pytest.fixture(scope="module")
def clip_task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task file with two questions about the first video, and a folder of its frames."""
    folder = tmp_path_factory.mktemp("clips")
    (folder / "frames").mkdir()
    rows = []
    for each in make_clip_examples("test", 1, ["when", "place"]):
        names = [f"frames/{number}.png" for number in range(len(each.frames))]
        for name, frame in zip(names, each.frames, strict=True):
            frame.save(folder / name)
        rows.append({"video": names, "question": each.question, "answers": [each.answer]})
    path = folder / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_pebble_clips_is_all_kinds_of_questions_about_clips() -> None:
    tasks = load_tasks(["pebble-clips"], limit=3)
    assert [task.name for task in tasks] == [
        f"pebble-clips/{kind}" for kind in CLIP_QUESTIONS.kinds
    ]
    assert [task.group for task in tasks] == list(CLIP_QUESTIONS.families.values())
    assert {task.version for task in tasks} == {"test, 3 clips"}
    assert {task.shows for task in tasks} == {frozenset({"video"})}


def test_pebble_clips_asks_what_its_benchmark_asks() -> None:
    (task,) = load_tasks(["pebble-clips/when"], split="validation", limit=2)
    expected = [each for each in make_clip_examples("validation", 2) if each.kind == "when"]
    found = list(task.examples())
    assert [(each.question, each.answers) for each in found] == [
        (each.question, (each.answer,)) for each in expected
    ]
    assert [each.id for each in found] == [str(each.scene_id) for each in expected]
    assert [len(each.videos) for each in found] == [1, 1]
    assert [frame.tobytes() for frame in found[0].videos[0]] == [
        frame.tobytes() for frame in expected[0].frames
    ]


def test_a_clip_is_no_relative_of_the_picture_with_its_number() -> None:
    clips, pictures = load_tasks(["pebble-clips/place", "pebble/place"], limit=2)
    first, second = (list(task.examples()) for task in (clips, pictures))
    assert [each.id for each in first] == [each.id for each in second]
    assert not {each.cluster for each in first} & {each.cluster for each in second}


def test_kinds_that_no_clip_allows_are_left_out() -> None:
    asked = {each.kind for each in make_clip_examples("test", 1)}
    assert asked < set(CLIP_QUESTIONS.kinds), (
        "take another video, which does not allow all questions"
    )
    (left_out, *_) = set(CLIP_QUESTIONS.kinds) - asked
    tasks = load_tasks(["pebble-clips"], limit=1)
    assert {task.name for task in tasks} == {f"pebble-clips/{kind}" for kind in asked}
    with pytest.raises(InputError, match=f"none of the first 1 clips .* '{left_out}'"):
        load_tasks([f"pebble-clips/{left_out}"], limit=1)


def test_clips_are_answered_together_as_alone(pebble_clips: VisionLanguageModel) -> None:
    when, place = load_tasks(["pebble-clips/when", "pebble-clips/place"], limit=1)
    (first,), (second,) = when.examples(), place.examples()
    inputs = pebble_clips.make_inputs([first, second])
    assert inputs["pixel_values_videos"].shape == (2, 8, 3, 96, 96)
    together = pebble_clips.answer(inputs)
    assert together == [
        pebble_clips.answer(pebble_clips.make_inputs([each]))[0] for each in (first, second)
    ]


def test_a_file_of_ones_own_may_show_clips(
    clip_task: Path, pebble_clips: VisionLanguageModel
) -> None:
    (mine,) = load_tasks([str(clip_task)])
    assert mine.shows == {"video"}
    (bundled,) = load_tasks(["pebble-clips/when"], limit=1)
    (first, second), (same,) = mine.examples(), bundled.examples()
    assert first.images == ()
    assert [frame.tobytes() for frame in first.videos[0]] == [
        frame.tobytes() for frame in same.videos[0]
    ]
    assert first.cluster != second.cluster
    records = score(
        pebble_clips, Scoring(Combination(MoB(136)), mine), GenerationSettings()
    ).records
    assert [each.tokens for each in records] == [136, 136]
    unpruned = score(pebble_clips, Scoring(Combination(None), mine), GenerationSettings()).records
    assert [each.tokens for each in unpruned] == [TOKENS, TOKENS]


GOOD = {"video": ["a.png"], "question": "what ?", "answers": ["x"]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**GOOD, "video": 3}, "a video is a file or the list of its frames, got 3"),
        ({**GOOD, "video": []}, "at least one frame"),
        ({**GOOD, "video": [3]}, "a frame is a path"),
        ({**GOOD, "image": "a.png"}, "both image and video"),
        ({"question": "what ?", "answers": ["x"]}, "neither image nor video"),
    ],
)
def test_files_with_mistakes_are_refused(
    tmp_path: Path, row: dict[str, object], message: str
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(InputError, match=message):
        load_tasks([str(path)])


@pytest.mark.parametrize(
    ("coupling", "expected"),
    [("strong", Split(174, 290, 13)), ("weak", Split(232, 232, 29)), (None, Split(155, 309, 19))],
)
def test_mob_splits_a_clip_by_the_table_for_videos(
    pebble_clips: VisionLanguageModel, coupling: Coupling | None, expected: Split
) -> None:
    """At 60 % reduction the table for images would give 116 and 193 of 464 to the prompt."""
    (task,) = load_tasks(["pebble-clips/when"], limit=1)
    method = MoB(464, split=PaperSplit(coupling))
    inputs = pebble_clips.make_inputs(list(task.examples()))
    with (
        torch.no_grad(),
        prune(pebble_clips.model, method, processor=pebble_clips.processor) as run,
    ):
        pebble_clips.model(**inputs, logits_to_keep=1)
    assert run.trace[0].details["split"] == [expected]


def test_a_folder_is_a_model_for_clips_too(tmp_path: Path) -> None:
    copied = tmp_path / "mine"
    shutil.copytree(CLIP_CHECKPOINT, copied)
    loaded = load_model(str(copied), dtype="bfloat16")
    assert loaded.model.dtype == torch.bfloat16
    (task,) = load_tasks(["pebble-clips/place"], limit=1)
    assert loaded.answer(loaded.make_inputs(list(task.examples())))[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["evaluate", "--tasks", "pebble-clips/when"],
            "pebble-clips/when cannot be evaluated on 'pe",
        ),
        (["evaluate", "--tasks", "pebble", "--model", "pebble-clips"], "pebble/exist cannot be"),
        (
            ["ablate", "--what", "fold", "--tasks", "pebble", "--model", "pebble-clips"],
            "takes no images",
        ),
        (["calibrate", "--tasks", "pebble-clips/when"], "takes no videos"),
    ],
)
def test_questions_of_the_other_model_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*arguments, "--limit", "1", "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_page_shows_the_frames(tmp_path: Path, clip_task: Path) -> None:
    results, page = tmp_path / "results", tmp_path / "page.html"
    evaluated = main(
        ["evaluate", "--model", "pebble-clips", "--tasks", str(clip_task), "--methods", "mob",
         "--budgets", "136", "--timing-batches", "0", "--threads", "1", "--out", str(results)]
    )  # fmt: skip
    assert evaluated == 0
    asked = ["--tasks", str(clip_task), "--images", "1"]
    assert main(["report", str(results), *asked, "--out", str(page)]) == 0
    text = page.read_text()
    assert text.count(f"136 of {TOKENS} visual tokens kept") == 1
    assert all(text.count(f"<div>video 1, frame {number}: ") == 1 for number in range(1, 9))


@pytest.mark.parametrize(
    ("model", "tasks"), [("pebble", "pebble"), ("pebble-clips", "pebble-clips"), ("x/y", "pebble")]
)
def test_a_bundled_model_is_asked_its_own_questions(model: str, tasks: str) -> None:
    assert get_default_tasks(model) == tasks
