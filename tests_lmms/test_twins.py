"""Pebble through lmms-eval answers as it does through our runner: pruned or not, in any batches."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lmms_eval import evaluator
from lmms_eval.models import get_model
from lmms_eval.tasks import TaskManager

from tokencover.errors import InputError
from tokencover.evaluation import (
    Combination,
    ExampleError,
    GenerationSettings,
    Scoring,
    VisionLanguageModel,
    load_model,
    load_tasks,
    score,
)
from tokencover.evaluation.lmms import gather_tasks
from tokencover.evaluation.lmms.chat_model import PrunedChatModel
from tokencover.lmms_manifest import list_task_folders
from tokencover.methods import GlobalCom2, Method, MoB

PICTURE_QUESTIONS, CLIP_QUESTIONS = 14, 14


@pytest.fixture(scope="module")
def models() -> dict[str, VisionLanguageModel]:
    torch.set_num_threads(1)
    return {name: load_model(name) for name in ("pebble", "pebble-clips")}


def ask_lmms(model: Any, task: str, limit: int, out: Path) -> tuple[list[str], float]:
    """Answers in the order of documents, and the number, of lmms-eval's own evaluator."""
    found = evaluator.simple_evaluate(
        model=model,
        tasks=[task],
        limit=limit,
        task_manager=TaskManager(
            include_path=[*map(str, list_task_folders())],
            include_defaults=False,
            model_name="tokencover",
        ),
        cli_args=Namespace(process_with_media=False, output_path=str(out), reasoning_tags=None),
        bootstrap_iters=0,
    )
    logged = sorted(found["samples"][task], key=lambda each: each["doc_id"])
    answers = [each["filtered_resps"][0] for each in logged]
    return answers, float(found["results"][task]["exact,none"])


def ask_ours(
    model: VisionLanguageModel, method: Method | None, benchmark: str, batch: int
) -> dict[tuple[str, str], tuple[str | None, float | None]]:
    """By kind and scene: answer and score of our own runner, about the first scene."""
    found = {}
    for task in load_tasks([benchmark], limit=1):
        scores = score(model, Scoring(Combination(method), task), GenerationSettings(batch))
        for each in scores.records:
            found[task.name.split("/")[1], each.id] = each.answer, each.score
    return found


@pytest.mark.parametrize(
    ("name", "task", "arguments", "method", "batch"),
    [
        ("pebble", "tokencover_pebble", {}, None, 1),
        ("pebble", "tokencover_pebble", {}, None, 8),
        ("pebble", "tokencover_pebble", {"method": "mob", "budget": 64}, MoB(64), 1),
        ("pebble", "tokencover_pebble", {"method": "mob", "budget": 64}, MoB(64), 8),
        ("pebble-clips", "tokencover_pebble_clips", {"method": "mob", "budget": 136}, MoB(136), 8),
    ],
)
def test_answers_are_those_of_our_runner(
    models: dict[str, VisionLanguageModel],
    name: str,
    task: str,
    arguments: dict[str, Any],
    method: Method | None,
    batch: int,
    tmp_path: Path,
) -> None:
    ours = ask_ours(models[name], method, name, batch)
    chat = PrunedChatModel(model=models[name], batch_size=batch, **arguments)
    answers, number = ask_lmms(chat, task, len(ours), tmp_path)
    (documents,) = gather_tasks([f"lmms:{task}"], limit=len(ours))
    names = [each.id.split(":")[1].split("-", 1) for each in documents.examples()]
    assert [(kind, scene) for scene, kind in names] == list(ours)
    assert answers == [answer for answer, _ in ours.values()]
    right = [value for _, value in ours.values() if value is not None]
    assert number == pytest.approx(sum(right) / len(ours))
    scores = score(
        models[name], Scoring(Combination(method), documents), GenerationSettings(batch)
    )  # the same documents as our task
    assert [each.answer for each in scores.records] == answers
    assert scores.metrics == {"exact": pytest.approx(number)}


def test_the_plugin_is_found_by_its_name() -> None:
    assert get_model("tokencover") is PrunedChatModel


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="no argument budgte, pretrainde; it takes pretrained"):
        PrunedChatModel.create_from_arg_string("pretrainde=pebble,budgte=64", {"batch_size": "1"})
    with pytest.raises(InputError, match="needs a method"):
        PrunedChatModel(budget=64)
    with pytest.raises(InputError, match="has no budget"):
        PrunedChatModel(method="mob")
    with pytest.raises(InputError, match="batch_size is a whole number, not 'auto'"):
        PrunedChatModel(batch_size="auto")
    with pytest.raises(InputError, match="pad is true or false, not 'no'"):
        PrunedChatModel.create_from_arg_string("pad=no", {"batch_size": "1"})
    with pytest.raises(InputError, match=r"budget .*'few'"):
        PrunedChatModel.create_from_arg_string("method=mob,budget=few", {"batch_size": "1"})


def test_sampling_is_refused(models: dict[str, VisionLanguageModel]) -> None:
    arguments = ("", None, {"do_sample": True, "temperature": 0.7}, 0, "captions", "test")
    with pytest.raises(InputError, match="captions needs beams or sampling"):
        PrunedChatModel(model=models["pebble"]).generate_until([Namespace(args=arguments)])


def test_all_devices_give_the_same_answers(
    models: dict[str, VisionLanguageModel], tmp_path: Path
) -> None:
    spread = PrunedChatModel(
        pretrained="pebble", method="mob", budget=64, batch_size="4", device_map="auto"
    )
    assert spread.device == torch.device("cpu")
    whole = PrunedChatModel(model=models["pebble"], method="mob", budget=64, batch_size=4)
    asked = [ask_lmms(each, "tokencover_pebble", 4, tmp_path) for each in (spread, whole)]
    assert asked[0] == asked[1]


def test_a_sample_that_fails_is_named(
    models: dict[str, VisionLanguageModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokencover.evaluation.lmms import media

    (task,) = gather_tasks(["lmms:gqa"])
    broken = list(task.examples())

    def fail() -> list[Any]:
        raise OSError("the file is cut off")

    broken[3] = replace(broken[3], show=fail)  # type: ignore[call-arg]
    work = Scoring(Combination(None), replace(task, examples=lambda: iter(broken)))
    with pytest.raises(ExampleError, match=r"example 3 failed.*unpruned, GQA.*cut off"):
        score(models["pebble"], work, GenerationSettings(4))
    monkeypatch.setattr(media, "_open_image", lambda source: fail())
    chat = PrunedChatModel(model=models["pebble"])
    with pytest.raises(ExampleError, match=r"example 0 failed.*tokencover_pebble.*cut off"):
        ask_lmms(chat, "tokencover_pebble", 2, tmp_path)


def test_a_method_that_cannot_run_is_told(
    models: dict[str, VisionLanguageModel], tmp_path: Path
) -> None:
    (task,) = gather_tasks(["lmms:gqa"])
    refused = score(
        models["pebble"], Scoring(Combination(GlobalCom2(64)), task), GenerationSettings(4)
    )
    assert refused.cannot is not None
    chat = PrunedChatModel(model=models["pebble"], method="globalcom2", budget=64)
    with pytest.raises(InputError, match="cannot run on tokencover_pebble"):
        ask_lmms(chat, "tokencover_pebble", 2, tmp_path)
