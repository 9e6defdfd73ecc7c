import json
from pathlib import Path

import pytest
from PIL import Image

from tests.evaluation.running import image_task
from tokencover.errors import InputError
from tokencover.evaluation import load_tasks
from tokencover.evaluation.plan import Combination, Scoring
from tokencover_models.pebble.data import SCENE_QUESTIONS
from tokencover_models.pebble.data import make_examples as pebble_examples


def test_pebble_is_all_kinds_of_questions() -> None:
    tasks = load_tasks(["pebble"], limit=2)
    assert [task.name for task in tasks] == [f"pebble/{kind}" for kind in SCENE_QUESTIONS.kinds]
    assert [task.group for task in tasks] == list(SCENE_QUESTIONS.families.values())


def test_pebble_asks_what_its_benchmark_asks() -> None:
    (task,) = load_tasks(["pebble/color"], split="validation", limit=2)
    expected = [each for each in pebble_examples("validation", 2) if each.kind == "color"]
    found = list(task.examples())
    assert [(each.question, each.answers) for each in found] == [
        (each.question, (each.answer,)) for each in expected
    ]
    assert [each.cluster for each in found] == [str(each.scene_id) for each in expected]
    assert found[0].images[0].tobytes() == expected[0].picture.tobytes()


def test_questions_about_one_scene_share_a_cluster() -> None:
    color, place = load_tasks(["pebble/color", "pebble/place"], limit=2)
    clusters = {each.cluster for each in color.examples()}
    assert clusters == {each.cluster for each in place.examples()}


def test_a_version_tells_examples_apart(tmp_path: Path) -> None:
    versions = {
        load_tasks(["pebble/color"], split=split, limit=limit)[0].version
        for split, limit in [("test", 2), ("test", 3), ("validation", 2)]
    }
    assert len(versions) == 3
    path = image_task(tmp_path / "mine.jsonl", 2)
    (before,) = load_tasks([str(path)])
    (again,) = load_tasks([str(path)])
    path.write_text(path.read_text().replace("?", "??"))
    (after,) = load_tasks([str(path)])
    assert before.version == again.version != after.version


def test_results_of_earlier_runs_stay_valid(tmp_path: Path) -> None:
    (color,) = load_tasks(["pebble/color"])
    work = Scoring(Combination(None), color)
    assert work.file == "scores-unpruned-pebble_color-070db175.json"
    assert work.identity == {
        "kind": "scores",
        "method": None,
        "task": "pebble/color",
        "group": "fine",
        "version": "test, 400 scenes",
    }
    path = tmp_path / "mine.jsonl"
    path.write_text(json.dumps(GOOD))
    assert load_tasks([str(path)])[0].version == "f6c4e106a8f209eb"


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = image_task(tmp_path / "mine.jsonl", 3, score="contains", group="strong")
    (task,) = load_tasks([str(path)], limit=2)
    first, second = task.examples()
    assert (task.name, task.group) == ("mine", "strong")
    assert (first.id, second.id) == ("q0", "q1")
    assert task.score(f"it is {first.answers[0]}", first) == 1
    with Image.open(tmp_path / "1.png") as picture:
        assert second.images[0].tobytes() == picture.convert("RGB").tobytes()


def test_examples_of_two_files_are_not_related(tmp_path: Path) -> None:
    files = [str(image_task(tmp_path / name, 2)) for name in ("a.jsonl", "b.jsonl")]
    clusters = [each.cluster for task in load_tasks(files) for each in task.examples()]
    assert len(set(clusters)) == 4


def test_several_pictures_and_one_answer(tmp_path: Path) -> None:
    for name, size in (("a.png", (4, 3)), ("b.png", (5, 6))):
        Image.new("L", size).save(tmp_path / name)
    path = tmp_path / "pair.jsonl"
    path.write_text('{"image": ["a.png", "b.png"], "question": "same ?", "answers": 7}\n\n')
    (example,) = load_tasks([str(path)])[0].examples()
    assert [picture.size for picture in example.images] == [(4, 3), (5, 6)]
    assert [picture.mode for picture in example.images] == ["RGB", "RGB"]
    assert example.answers == ("7",)


def test_a_broken_picture_is_a_matter_of_its_example(broken_task: Path) -> None:
    (task,) = load_tasks([str(broken_task)])
    first, second, third = task.examples()
    assert len(first.images) == len(third.images) == 1
    with pytest.raises(InputError, match=r"1\.png as an image"):
        _ = second.images


GOOD = {"image": "a.png", "question": "what ?", "answers": ["x"]}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "no examples"),
        (["{"], "line 1 is not a JSON object"),
        (["[1, 2]"], "line 1 is not a JSON object"),
        ([json.dumps(GOOD), '"text"'], "line 2 is not a JSON object"),
        (['{"image": "a.png", "question": "what ?"}'], "line 1 lacks answers"),
        ([json.dumps({**GOOD, "answers": []})], "line 1 has no answer"),
        ([json.dumps({**GOOD, "image": [3]})], "line 1: an image is a path"),
        ([json.dumps({**GOOD, "score": "best"})], "no score is called 'best'"),
        ([json.dumps({**GOOD, "score": "vqa"})], "at least 4 people"),
        ([json.dumps({**GOOD, "id": 1})] * 2, "same id"),
    ],
)
def test_files_with_mistakes_are_refused(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match=message):
        load_tasks([str(path)])


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        load_tasks([str(path)])


@pytest.mark.parametrize(
    ("names", "limit", "message"),
    [
        (["pebble/magic"], None, "'magic'"),
        (["nowhere.jsonl"], None, "there is no task 'nowhere.jsonl'"),
        (["pebble", "pebble/color"], None, "given twice: pebble/color"),
        (["pebble/color"], 0, "got 0"),
    ],
)
def test_unknown_tasks_are_refused(names: list[str], limit: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_tasks(names, limit=limit)


def test_a_limit_must_leave_something(tmp_path: Path) -> None:
    path = image_task(tmp_path / "mine.jsonl", 1)
    with pytest.raises(InputError, match="at least 1 example, got -1"):
        load_tasks([str(path)], limit=-1)
