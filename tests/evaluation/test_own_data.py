"""Tasks from JSON, CSV, datasets and rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from tokencover.errors import InputError, MissingPackageError
from tokencover.evaluation import load_tasks, make_task

ROWS = [
    {"image": "a.png", "question": "what, if anything ?", "answers": ["cat", "kitten"]},
    {"image": ["a.png", "b.png"], "question": "same ?", "answers": ["no"]},
]
CSV = """image,question,answers
a.png,"what, if anything ?","[""cat"", ""kitten""]"
"[""a.png"", ""b.png""]",same ?,no
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, color in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (4, 4), color).save(tmp_path / name)
    return tmp_path


def describe(name: Path | str) -> list[tuple[str, tuple[str, ...], int]]:
    """What the examples of a task are."""
    (task,) = load_tasks([str(name)])
    return [(each.question, each.answers, len(each.images)) for each in task.examples()]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lines.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("lines.json", "\n".join(map(json.dumps, ROWS))),
        ("marked.jsonl", "\ufeff" + "\r\n".join(map(json.dumps, ROWS))),
        ("list.json", json.dumps(ROWS)),
        ("pretty.json", json.dumps(ROWS, indent=2)),
        ("marked.json", "\ufeff" + json.dumps(ROWS)),
        ("table.csv", CSV),
        ("marked.csv", "\ufeff" + CSV),
        ("singular.csv", CSV.replace("answers", "answer")),
        ("table.tsv", CSV.replace("image,question,answers", "image\tquestion\tanswers")
            .replace('a.png,"what, if anything ?",', "a.png\twhat, if anything ?\t")
            .replace("]\",same ?,no", ']"\tsame ?\tno')),
        ("semicolons.csv", CSV.replace(",question,", ";question;").replace("a.png,", "a.png;", 1)
            .replace('?",', '?";').replace(']",same ?,', ']";same ?;')),
        ("headings.csv", CSV.replace("image,question,answers", " Image, Question,ANSWERS ")),
    ],
)  # fmt: skip
def test_every_form_says_the_same(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    assert describe(folder / name) == [
        ("what, if anything ?", ("cat", "kitten"), 1),
        ("same ?", ("no",), 2),
    ]


@pytest.mark.parametrize("key", ["answer", "answers"])
@pytest.mark.parametrize("value", ["cat", ["cat"]])
def test_one_answer_or_several(folder: Path, key: str, value: Any) -> None:
    row = {"image": "a.png", "question": "what ?", key: value}
    (folder / "mine.jsonl").write_text(json.dumps(row))
    assert describe(folder / "mine.jsonl") == [("what ?", ("cat",), 1)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mine.json", '[{"image": "a.png"}]', "row 1 lacks answers, question"),
        ("mine.json", '[{"image": "a.png",]', "is not a JSON list"),
        ("mine.json", "[]", "no examples"),
        ("mine.csv", "image,question\na.png,what ?\n", "line 2 lacks answers"),
        ("mine.csv", "image,question,answer\na.png,what, now ?,cat\n", "line 2 has more cells"),
        ("mine.csv", 'image,question,answer\na.png,"what ?,cat\n', "is not CSV"),
        ("mine.csv", "image,question,answer\na.png,  ,cat\n", "line 2 has an empty question"),
        ("mine.csv", "photo,question,answer\na.png,what ?,cat\n",
         "neither image nor video.*it has photo, question, answer"),
        ("mine.csv", "image,question,answer\n", "names the columns"),
        ("mine.json", '{\n"data": [1]\n}', "row 1 lacks answers, question; it has data"),
        ("mine.jsonl", '{"image": "a.png", "question": null, "answer": "x"}', "an empty question"),
        ("mine.jsonl", '{"image": "a.png", "question": ["?"], "answer": "x"}', "question is text"),
        ("mine.jsonl", '{"image": "a.png", "question": "?", "answer": null}', "has no answer"),
        ("mine.jsonl", '{"image": "a.png", "question": "?", "answers": [""]}', "an empty one"),
        ("mine.jsonl", '{"image": "https://x.org/a.png", "question": "?", "answer": "x"}',
         "https://x.org/a.png is a URL, and tokencover does not download"),
        ("mine.jsonl", '{"video": "x.mp4", "question": "?", "answer": "x", "frames": 0}',
         "frames is the number"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        load_tasks([str(tmp_path / name)])


def test_text_in_another_encoding_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(ROWS), encoding="utf-16")
    with pytest.raises(InputError, match=r"not text in UTF-8.*Save it as UTF-8"):
        load_tasks([str(tmp_path / "mine.json")])


def test_a_clip_may_be_a_file(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), (50 * number, 0, 0)) for number in range(4)]
    frames[0].save(tmp_path / "x.gif", save_all=True, append_images=frames[1:])
    row = {"video": "x.gif", "question": "what ?", "answer": "x", "frames": 2}
    (tmp_path / "mine.jsonl").write_text(json.dumps(row))
    (task,) = load_tasks([str(tmp_path / "mine.jsonl")])
    (example,) = task.examples()
    assert task.shows == {"video"}
    assert [len(clip) for clip in example.videos] == [2]


def test_pictures_in_memory_tell_versions_apart() -> None:
    versions = {
        make_task(
            [{"image": Image.new("L", (2, 2), value), "question": "?", "answer": "x"}]
        ).version
        for value in (0, 0, 9)
    }
    assert len(versions) == 2


class Saved:
    """As much of a data set of `datasets` as is used."""

    column_names = ("image", "question", "answer")
    _fingerprint = "f1"
    features: Any = {"image": SimpleNamespace(dtype="PIL.Image.Image")}  # noqa: RUF012

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.unpacked: list[int] = []

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return [row[key] for row in self.rows]
        self.unpacked.append(key)
        return self.rows[key]


def test_a_data_set_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` is heavy, and not among the packages of the tests: this has its face."""
    rows = [{"image": Image.new("L", (3, 2)), "question": f"{n} ?", "answer": "x"} for n in (0, 1)]
    saved = Saved(rows)
    library = SimpleNamespace(Dataset=Saved, load_from_disk=lambda folder: {"test": saved})
    (tmp_path / "dataset_dict.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", library)
    (task,) = load_tasks([str(tmp_path)])
    examples = list(task.examples())
    assert saved.unpacked == []
    assert [each.question for each in examples] == ["0 ?", "1 ?"]
    assert examples[1].images[0].size == (3, 2)
    assert saved.unpacked == [1]
    with pytest.raises(InputError, match="no split 'validation'; it has test"):
        load_tasks([str(tmp_path)], split="validation")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingPackageError, match=r"needs datasets.*tokencover\[datasets\]"):
        load_tasks([str(tmp_path)])


@pytest.mark.parametrize(
    ("column", "feature", "cell", "expected"),
    [
        ("image", SimpleNamespace(dtype="string"), "a.png", "images"),
        ("image", SimpleNamespace(feature=SimpleNamespace(dtype="string")), ["a.png"], "images"),
        ("video", SimpleNamespace(dtype="string"), "a.gif", "videos"),
        ("video", SimpleNamespace(feature=SimpleNamespace(dtype="string")), ["a.png"], "videos"),
        (
            "image",
            SimpleNamespace(feature=SimpleNamespace(dtype="PIL.Image.Image")),
            [Image.new("L", (3, 2)), Image.new("L", (3, 4))],
            "images",
        ),
    ],
)
def test_a_data_set_may_hold_paths_and_lists(
    column: str,
    feature: Any,
    cell: Any,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Columns(Saved):
        column_names = (column, "question", "answer")
        features: Any = {column: feature}  # noqa: RUF012

        def with_format(self, _: str) -> Any:
            return self

        def __getitem__(self, key: Any) -> Any:
            return {column: [cell]} if isinstance(key, slice) else super().__getitem__(key)

    saved = Columns([{column: cell, "question": "what ?", "answer": "x"}])
    library = SimpleNamespace(Dataset=Saved, load_from_disk=lambda folder: saved)
    frames = [Image.new("L", (4, 4), 20 * number) for number in range(8)]
    frames[0].save(tmp_path / "a.png")
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", library)
    (task,) = load_tasks([str(tmp_path / "set")])
    (example,) = task.examples()
    found = getattr(example, expected)
    assert len(found) == (2 if isinstance(cell, list) and len(cell) == 2 else 1)
