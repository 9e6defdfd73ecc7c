"""What stands between lmms-eval and our runner, as far as it needs no lmms-eval."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.evaluation.made_results import get_paper_row
from tokencover.cli.app import main
from tokencover.cli.options import SUITE_NAMES
from tokencover.errors import InputError
from tokencover.evaluation import load_tasks
from tokencover.evaluation.lmms import (
    PAPER_BENCHMARKS,
    SUITES,
    ShowingSettings,
    gather_tasks,
    name_suite,
)
from tokencover.evaluation.lmms.benchmarks import NEEDED, check_judge
from tokencover.evaluation.lmms.functions import (
    score_words,
    write_activitynet_question,
    write_question,
)
from tokencover.evaluation.lmms.media import (
    CLIP_MEAN,
    choose_frames,
    extract_question,
    load_medium,
    pad_to_square,
    read_messages,
)
from tokencover.evaluation.report.paper_comparison import VANILLA
from tokencover.lmms_manifest import TASKS


def test_the_list_of_benchmarks_is_the_papers() -> None:
    groups = {
        "strong": ["MMB", "MMB-CN", "SQA", "VizWiz"],
        "weak": ["GQA", "MME", "POPE", "TextVQA", "VQAv2", "OCR"],
        "video": ["TGIF", "MSVD", "MSRVTT", "ActivityNet"],
    }
    assert len(PAPER_BENCHMARKS) == 14
    for group, names in groups.items():
        assert {each.name for each in PAPER_BENCHMARKS if each.group == group} == set(names)
    printed = {
        **get_paper_row("LLaVA-1.5-7B", 0.0, VANILLA).scores,
        **get_paper_row("Video-LLaVA-7B", 0.0, VANILLA).scores,
    }
    assert {each.name: each.paper for each in PAPER_BENCHMARKS} == printed
    assert all(each.differs for each in PAPER_BENCHMARKS)


def test_suites_are_made_of_them() -> None:
    assert {name: len(tasks) for name, tasks in SUITES.items()} == {
        "paper": 14,
        "paper-images": 10,
        "paper-video": 4,
        "paper-strong": 4,
        "paper-weak": 6,
    }
    assert tuple(SUITES) == SUITE_NAMES
    assert name_suite("paper-video")[-1] == "lmms:tokencover_activitynet_qa"
    with pytest.raises(InputError, match="no suite is called 'all'"):
        name_suite("all")
    ours = [each.task for each in PAPER_BENCHMARKS if each.task.startswith("tokencover_")]
    files = "".join(path.read_text(encoding="utf-8") for path in TASKS.glob("*.yaml"))
    assert len(ours) == 6
    assert all(f"task: {name}\n" in files for name in ours)


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("what is it ?", "Hint. what is it ?\nA. cat\nAnswer.", "what is it ?"),
        ("what Is It?", "What is it?\nUnanswerable if unsure.", "What is it?"),
        ("Is it red? Please answer yes or no.", "Is it red?\nOne word.", "Is it red?"),
        ("what is it", "What is it? One word.", "What is it"),
        ("it", "it is it ?", "it"),
    ],
)
def test_the_question_is_found_in_what_is_asked(question: str, text: str, found: str) -> None:
    assert extract_question({"question": question}, text, "here") == found


@pytest.mark.parametrize("document", [{"question": "where ?"}, {"question": " "}, {}])
def test_a_question_that_is_not_there_is_told(document: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="--prompt-words turn"):
        extract_question(document, "what is it ?", "gqa, document 3")


def turn(*items: dict[str, Any], role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(items)}]


def test_one_turn_with_pictures_first_is_read() -> None:
    picture, words = {"type": "image", "url": "a.png"}, {"type": "text", "text": "what ?"}
    assert read_messages(turn(picture, picture, words), "x") == ([picture, picture], "what ?")
    for wrong in (
        turn(words, picture),
        turn(picture),
        turn(picture, words, role="system"),
        turn(words) + turn(words),
        turn({"type": "audio", "url": "a.wav"}, words),
        None,
    ):
        with pytest.raises(InputError, match=r"^gqa, document 7 .* not supported"):
            read_messages(wrong, "gqa, document 7")


def test_padding_makes_a_square_around_the_picture() -> None:
    picture = Image.new("RGB", (4, 2), "red")
    square = pad_to_square(picture)
    assert square.size == (4, 4)
    columns = [[square.getpixel((x, y)) for y in range(4)] for x in range(4)]
    assert columns == [[CLIP_MEAN, (255, 0, 0), (255, 0, 0), CLIP_MEAN]] * 4
    shown = load_medium({"type": "image", "url": picture}, ShowingSettings(pad=True))
    assert isinstance(shown, Image.Image)
    assert shown.size == (4, 4)
    whole = load_medium({"type": "image", "url": picture}, ShowingSettings())
    assert isinstance(whole, Image.Image)
    assert whole.size == (4, 2)


@pytest.mark.parametrize(
    ("frames", "count", "places"),
    [
        (8, 8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (100, 8, [0, 14, 28, 42, 56, 70, 84, 99]),
        (3, 5, [0, 0, 1, 1, 2]),
        (9, 1, [0]),
    ],
)
def test_frames_lie_at_equal_distances(frames: int, count: int, places: list[int]) -> None:
    assert choose_frames(frames, count) == places


def test_open_answers_are_scored_by_words() -> None:
    document = {"answer": "Cat"}
    assert score_words(document, ["A cat, I think."]) == {"contained": 1.0, "exact": 0.0}
    assert score_words(document, ["cat."]) == {"contained": 1.0, "exact": 1.0}
    assert score_words(document, ["a caterpillar"]) == {"contained": 0.0, "exact": 0.0}


def test_questions_are_written_with_the_words_around_them() -> None:
    around = {"pre_prompt": "Look. ", "post_prompt": " Be short."}
    assert write_question({"question": "why ?"}, around) == "Look. why ? Be short."
    assert write_question({"question": "why ?"}) == "why ?"
    assert write_activitynet_question({"question": "what IS it"}, None) == "What is it?"


def hide(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in missing else ModuleSpec(name, None)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def test_a_missing_package_is_told_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    hide(monkeypatch, "lmms_eval", "pytz")
    arguments = ["--suite", "paper", "--model", "no-such-model", "--out", str(tmp_path / "r")]
    assert main(["evaluate", *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "need lmms-eval, pytz," in line
    assert "pip install --no-deps lmms-eval==0.7.3" in line
    assert not (tmp_path / "r").exists()


def test_the_extra_lists_what_is_needed() -> None:
    lines = (Path(__file__).parents[2] / "pyproject.toml").read_text().splitlines()
    start = lines.index("lmms = [")
    listed = [line.strip(' ",') for line in lines[start + 1 : lines.index("]", start)]]
    names = {each.split(">")[0].split("<")[0] for each in listed}
    assert {name.split("<")[0] for name in NEEDED.values()} <= names


def test_a_missing_judge_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "AZURE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    config = {"task": "activitynetqa", "metric_list": [{"metric": "gpt_eval_accuracy"}]}
    with pytest.raises(InputError, match="activitynetqa lets a judge score"):
        check_judge(config)
    check_judge({**config, "task": "mmbench_en_dev_static"})
    check_judge({"task": "gqa", "metric_list": [{"metric": "exact_match"}]})
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    check_judge(config)


def test_names_of_ours_are_found_as_before() -> None:
    names = ["pebble/color", "pebble/place"]
    found = gather_tasks(names, limit=2)
    assert [(each.name, each.version) for each in found] == [
        (each.name, each.version) for each in load_tasks(names, limit=2)
    ]
    with pytest.raises(InputError, match="given twice: gqa"):
        gather_tasks(["lmms:gqa", "lmms:gqa"])


@pytest.mark.parametrize("wrong", [{"prompt_words": "all"}, {"frames": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ShowingSettings(**wrong)
