"""Write five made-up rows of each of the paper's 14 benchmarks, as a download leaves them.

    python tools/write_miniatures.py FOLDER

With ``HF_HOME=FOLDER HF_HUB_OFFLINE=1 HF_TOKEN=none`` lmms-eval then finds every data set in its
own schema: parquet files under FOLDER/parquet, prepared under FOLDER/datasets as the `datasets`
package keeps what it has downloaded once, and videos where lmms-eval and Video-LLaVA have them.
Images, videos and questions are pebble's. Needs what `tokencover evaluate --suite paper` needs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import av
from datasets import Dataset, Features, Image, Value
from datasets import Sequence as Series
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.parquet.parquet import Parquet

from tokencover_models.pebble.data import (
    ClipExample,
    PictureExample,
    make_clip_examples,
    make_examples,
)

ROWS: Final = 5
COMMIT: Final = "0" * 40
TEXT, NUMBER = Value("string"), Value("int64")
Row = dict[str, Any]


def write_miniatures(folder: Path) -> None:
    """Write all of them."""
    for dataset, config, split, features, rows in list_datasets():
        write_dataset(folder, dataset, config, split, Features(features), rows)
    write_videos(folder)


def list_datasets() -> list[tuple[str, str, str, dict[str, Any], list[Row]]]:
    """Data set, configuration, split, schema and rows of those that are parquet files."""
    lab = "lmms-lab-encoder"
    return [
        (f"{lab}/GQA", "testdev_balanced_instructions", "testdev", *_make_gqa_questions()),
        (f"{lab}/GQA", "testdev_balanced_images", "testdev", *_make_gqa_pictures()),
        (f"{lab}/MMBench", "en", "dev", *_make_mmbench("", "There is an image.")),
        (f"{lab}/MMBench", "cn", "dev", *_make_mmbench("图中 ", "nan")),
        (f"{lab}/MME", "default", "test", *_make_mme()),
        (f"{lab}/POPE", "default", "test", *_make_pope()),
        (f"{lab}/VizWiz-VQA", "default", "val", *_make_vizwiz()),
        (f"{lab}/ScienceQA", "ScienceQA-IMG", "test", *_make_scienceqa()),
        (f"{lab}/VQAv2", "default", "validation", *_make_vqav2()),
        (f"{lab}/textvqa", "default", "validation", *_make_textvqa()),
        ("echo840/OCRBench", "default", "test", *_make_ocrbench()),
        ("lmms-eval/ActivityNetQA", "default", "test", *_make_activitynet()),
    ]


def ask_pictures(*kinds: str, count: int = ROWS) -> list[PictureExample]:
    """Pebble's questions of some kinds, by turns, each about another scene."""
    return [
        next(each for each in make_examples("test", scene + 1, [kinds[scene % len(kinds)]])
             if each.scene_id == scene)
        for scene in range(count)
    ]  # fmt: skip


def ask_clips(count: int = ROWS) -> list[ClipExample]:
    """Pebble's questions about what is in the first videos."""
    wanted = ("place", "animal_color")
    examples = make_clip_examples("test", count)
    found = {(each.scene_id, each.kind): each for each in examples if each.kind in wanted}
    return [found[clip, wanted[clip % 2]] for clip in range(count)]


def _make_gqa_questions() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "id": TEXT, "imageId": TEXT, "question": TEXT, "isBalanced": Value("bool"),
        "types": {"structural": TEXT, "semantic": TEXT, "detailed": TEXT},
        "answer": TEXT, "fullAnswer": TEXT, "semanticStr": TEXT,
    }  # fmt: skip
    types = {"structural": "query", "semantic": "attr", "detailed": "color"}
    rows = [
        {"id": f"20{number}", "imageId": f"n{each.scene_id}", "question": each.question,
         "isBalanced": True, "types": types, "answer": each.answer,
         "fullAnswer": f"It is {each.answer}.", "semanticStr": "select: thing"}
        for number, each in enumerate(ask_pictures("color", "place"))
    ]  # fmt: skip
    return features, rows


def _make_gqa_pictures() -> tuple[dict[str, Any], list[Row]]:
    pictures = ask_pictures("color", "place")
    rows = [{"id": f"n{each.scene_id}", "image": each.picture} for each in pictures]
    return {"id": TEXT, "image": Image()}, rows


def _make_mmbench(before: str, hint: str) -> tuple[dict[str, Any], list[Row]]:
    """Two questions, one of them four times with its options turned, as MMBench has them."""
    letters = "ABCD"
    features = {
        "index": NUMBER, "question": TEXT, "hint": TEXT, "answer": TEXT,
        **dict.fromkeys(letters, TEXT), "category": TEXT, "image": Image(), "source": TEXT,
        "L2-category": TEXT, "comment": TEXT, "split": TEXT,
    }  # fmt: skip
    rows = []
    for scene, copies in ((0, 4), (1, 1)):
        (each,) = [e for e in make_examples("test", scene + 1, ["place"]) if e.scene_id == scene]
        options = [
            each.answer,
            *[p for p in ("meadow", "beach", "night", "snow") if p != each.answer],
        ]
        for copy in range(copies):
            turned = [options[(place - copy) % 4] for place in range(4)]
            rows.append(
                {"index": scene + 1 + copy * 1_000_000, "question": before + each.question,
                 "hint": hint, "answer": letters[turned.index(each.answer)],
                 **dict(zip(letters, turned, strict=True)), "category": "image_scene",
                 "image": each.picture, "source": "pebble", "L2-category": "coarse_perception",
                 "comment": "nan", "split": "dev"}
            )  # fmt: skip
    return features, rows


def _make_mme() -> tuple[dict[str, Any], list[Row]]:
    """Three pairs, each a question to be answered by yes and one by no: an odd number cannot be."""
    features = {
        "question_id": TEXT, "image": Image(), "question": TEXT, "answer": TEXT, "category": TEXT,
    }  # fmt: skip
    rows = []
    for each, category in zip(
        ask_pictures("place", count=3), ("scene", "scene", "code_reasoning"), strict=True
    ):
        for right in (True, False):
            place = each.answer if right else next(p for p in ("beach", "snow") if p != each.answer)
            rows.append(
                {"question_id": f"{category}/{each.scene_id}.png", "image": each.picture,
                 "question": f"is this a {place} ? Please answer yes or no.",
                 "answer": "Yes" if right else "No", "category": category}
            )  # fmt: skip
    return features, rows


def _make_pope() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "id": TEXT, "question_id": TEXT, "question": TEXT, "answer": TEXT, "image_source": TEXT,
        "image": Image(), "category": TEXT,
    }  # fmt: skip
    rows = [
        {"id": str(number), "question_id": str(number + 1), "question": each.question,
         "answer": each.answer, "image_source": f"COCO_val2014_{each.scene_id:012}",
         "image": each.picture, "category": "adversarial"}
        for number, each in enumerate(ask_pictures("exist"))
    ]  # fmt: skip
    return features, rows


def _make_vizwiz() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "question_id": TEXT, "image": Image(), "question": TEXT, "answers": Series(TEXT),
        "category": TEXT,
    }  # fmt: skip
    rows = [
        {"question_id": f"VizWiz_val_{number:08}", "image": each.picture, "question": each.question,
         "answers": [each.answer] * 8 + ["unanswerable"] * 2, "category": "other"}
        for number, each in enumerate(ask_pictures("color", "shape"))
    ]  # fmt: skip
    return features, rows


def _make_scienceqa() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "image": Image(), "question": TEXT, "choices": Series(TEXT), "answer": Value("int8"),
        "hint": TEXT, "task": TEXT, "grade": TEXT, "subject": TEXT, "topic": TEXT, "category": TEXT,
        "skill": TEXT, "lecture": TEXT, "solution": TEXT,
    }  # fmt: skip
    rows = []
    for number, each in enumerate(ask_pictures("place")):
        wrong = next(p for p in ("beach", "snow") if p != each.answer)
        choices = [each.answer, wrong] if number % 2 else [wrong, each.answer]
        rows.append(
            {"image": each.picture, "question": each.question, "choices": choices,
             "answer": choices.index(each.answer), "hint": "Look at the ground." * (number == 0),
             "task": "closed choice", "grade": "grade2", "subject": "natural science",
             "topic": "geography", "category": "Places", "skill": "Name a place", "lecture": "",
             "solution": ""}
        )  # fmt: skip
    return features, rows


def _make_vqav2() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "question_type": TEXT, "multiple_choice_answer": TEXT,
        "answers": [{"answer": TEXT, "answer_confidence": TEXT, "answer_id": NUMBER}],
        "image_id": NUMBER, "answer_type": TEXT, "question_id": NUMBER, "question": TEXT,
        "image": Image(),
    }  # fmt: skip
    rows = []
    for number, each in enumerate(ask_pictures("color", "exist")):
        people = [each.answer] * 9 + ["black"]
        answers = [
            {"answer": said, "answer_confidence": "yes", "answer_id": person + 1}
            for person, said in enumerate(people)
        ]
        rows.append(
            {"question_type": "what", "multiple_choice_answer": each.answer, "answers": answers,
             "image_id": each.scene_id, "answer_type": "other", "question_id": 1000 + number,
             "question": each.question, "image": each.picture}
        )  # fmt: skip
    return features, rows


def _make_textvqa() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "image_id": TEXT, "question_id": Value("int32"), "question": TEXT,
        "question_tokens": Series(TEXT), "image": Image(), "image_width": Value("int32"),
        "image_height": Value("int32"), "flickr_original_url": TEXT, "flickr_300k_url": TEXT,
        "answers": Series(TEXT), "image_classes": Series(TEXT), "set_name": TEXT,
        "ocr_tokens": Series(TEXT),
    }  # fmt: skip
    rows = [
        {"image_id": f"{each.scene_id:016x}", "question_id": 34602 + number,
         "question": each.question, "question_tokens": each.question.split(),
         "image": each.picture, "image_width": each.picture.width,
         "image_height": each.picture.height, "flickr_original_url": "", "flickr_300k_url": "",
         "answers": [each.answer] * 10, "image_classes": [], "set_name": "val",
         "ocr_tokens": [each.answer, "7"]}
        for number, each in enumerate(ask_pictures("read"))
    ]  # fmt: skip
    return features, rows


def _make_ocrbench() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "dataset": TEXT, "question": TEXT, "question_type": TEXT, "answer": Series(TEXT),
        "image": Image(),
    }  # fmt: skip
    kinds = (
        "Regular Text Recognition", "Digit String Recognition", "Scene Text-centric VQA",
        "Doc-oriented VQA", "Handwritten Mathematical Expression Recognition",
    )  # fmt: skip
    sources = ("IIIT5K", "IAM", "TextVQA", "docVQA", "HME100k")
    rows = [
        {"dataset": source, "question": each.question, "question_type": kind,
         "answer": [each.answer], "image": each.picture}
        for each, kind, source in zip(ask_pictures("read"), kinds, sources, strict=True)
    ]  # fmt: skip
    return features, rows


def _make_activitynet() -> tuple[dict[str, Any], list[Row]]:
    features = {
        "video_name": TEXT, "question": TEXT, "question_id": TEXT, "answer": TEXT, "type": TEXT,
    }  # fmt: skip
    rows = [
        {"video_name": f"clip{each.scene_id}", "question": each.question.removesuffix(" ?"),
         "question_id": f"v_clip{each.scene_id}_0", "answer": each.answer, "type": "8"}
        for each in ask_clips()
    ]  # fmt: skip
    return features, rows


def write_dataset(
    folder: Path, dataset: str, config: str, split: str, features: Features, rows: Sequence[Row]
) -> None:
    """Write a parquet file, and let `datasets` prepare it where it looks when it is offline."""
    owner, name = dataset.split("/")
    source = folder / "parquet" / dataset / config / f"{split}-00000-of-00001.parquet"
    source.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(list(rows), features=features).to_parquet(source)
    prepared = folder / "datasets" / f"{owner}___{camelcase_to_snakecase(name)}"
    builder = Parquet(
        cache_dir=str(folder / "building"),
        dataset_name=name,
        config_name=config,
        data_files={split: [str(source)]},
    )
    builder.download_and_prepare(output_dir=str(prepared / config / "0.0.0" / COMMIT))


def write_videos(folder: Path) -> None:
    """Write the videos, and the questions of those data sets that are JSON files."""
    clips = ask_clips()
    write_clips(clips, lambda clip: folder / "activitynetqa" / "all_test" / f"v_clip{clip}.mp4")
    for name, videos in (("TGIF", "mp4"), ("MSVD", "videos"), ("MSRVTT", "videos/all")):
        place = folder / "GPT_Zero_Shot_QA" / f"{name}_Zero_Shot_QA"
        write_clips(clips, lambda clip, at=place / videos: at / f"video{clip}.mp4")  # type: ignore[misc]
        questions = [
            {"video_name": f"video{each.scene_id}", "question": each.question,
             "question_id": f"{name.lower()}_{each.scene_id}"}
            for each in clips
        ]  # fmt: skip
        answers = [
            {"answer": each.answer, "question_id": f"{name.lower()}_{each.scene_id}"}
            for each in clips
        ]
        (place / "test_q.json").write_text(json.dumps(questions, indent=1))
        (place / "test_a.json").write_text(json.dumps(answers, indent=1))


def write_clips(clips: Sequence[ClipExample], name: Callable[[int], Path]) -> None:
    """Write videos as MP4 files."""
    for each in clips:
        path = name(each.scene_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("mpeg4", rate=4)
            stream.width, stream.height = each.frames[0].size
            stream.pix_fmt, stream.bit_rate = "yuv420p", 4_000_000
            for frame in each.frames:
                container.mux(stream.encode(av.VideoFrame.from_image(frame)))
            container.mux(stream.encode())


if __name__ == "__main__":
    write_miniatures(Path(sys.argv[1]))
