"""Every benchmark of the paper from its files to its number: by hand, by us, and by lmms-eval."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from lmms_eval import evaluator
from lmms_eval.tasks import TaskManager

from tests_lmms.scripted import SCRIPT, ScriptedModel, read_rights, say
from tokencover.evaluation import Task
from tokencover.evaluation.lmms import PAPER_BENCHMARKS, gather_tasks, name_suite
from tokencover.lmms_manifest import TASKS

MATCH = pytest.approx

# Scores of single answers, the share that tables show (None: their mean), and lmms-eval's numbers.
BY_HAND: dict[str, tuple[list[float], float | None, dict[str, float]]] = {
    # Four of four letters of the first question; the second has none, and counts as much.
    "MMB": ([1, 1, 1, 1, 0], 0.5, {"gpt_eval_score": 50.0}),
    # The fourth letter of the first question is wrong, so all of it is: only the second counts.
    "MMB-CN": ([1, 1, 1, 0, 1], 0.5, {"gpt_eval_score": 50.0}),
    # The right ones are B, A, B, A, B; "A." and "A. it is" are read as A, "a" is wrong.
    "SQA": ([1, 1, 0, 1, 0], None, {"exact_match": 0.6}),
    # Eight of ten people: min(1, 7/3), for the other two 8/3; two of ten: 8 times 2/3, twice 1/3.
    "VizWiz": ([1, (8 * 2 / 3 + 2 * 1 / 3) / 10, 1, 0, 1], None,
               {"exact_match": (3 + (8 * 2 / 3 + 2 * 1 / 3) / 10) / 5}),
    "GQA": ([1, 1, 0, 1, 0], None, {"exact_match": 0.6}),
    # scene: a pair that is right (200), one half right (50); cognition: half right (50).
    "MME": ([1, 1, 1, 0, 0, 1], (125 + 50) / 400,
            {"mme_perception_score": 125.0, "mme_cognition_score": 50.0}),
    # Yes four times and no: two of them found, one missed, one "perhaps", which F1 leaves out, and
    # one found where there is none. Precision and recall are two of three, right are two of five.
    "POPE": ([1, 0, 0, 1, 0], 2 / 3,
             {"pope_accuracy": 0.4, "pope_precision": 2 / 3, "pope_recall": 2 / 3,
              "pope_f1_score": 2 / 3, "pope_yes_ratio": 0.8}),
    "TextVQA": ([1, 0, 1, 1, 1], None, {"exact_match": 0.8}),
    # One of ten people: nine times 1/3; "black" is that one person's.
    "VQAv2": ([1, 0.3, 1, 1, 0], None, {"exact_match": 0.66}),
    # lmms-eval divides by the thousand questions of the whole benchmark.
    "OCR": ([1, 0, 1, 1, 1], None, {"ocrbench_accuracy": 0.004}),
    "TGIF": ([1, 1, 0, 0, 0], None, {"contained": 0.4, "exact": 0.2}),
    "MSVD": ([1, 1, 1, 0, 1], None, {"contained": 0.8, "exact": 0.6}),
    "MSRVTT": ([0, 0, 0, 0, 1], None, {"contained": 0.2, "exact": 0.2}),
    "ActivityNet": ([1, 1, 0, 1, 0], None, {"contained": 0.6, "exact": 0.4}),
}  # fmt: skip


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {each.name: each for each in gather_tasks(name_suite("paper"))}


@pytest.fixture(scope="module")
def scripted() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture(scope="module")
def theirs(scripted: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What lmms-eval's own evaluator makes of the same answers."""
    out = str(tmp_path_factory.mktemp("lmms"))
    return evaluator.simple_evaluate(
        model=scripted,
        tasks=list(SCRIPT),
        task_manager=TaskManager(include_path=[str(TASKS)], model_name="tokencover"),
        cli_args=Namespace(process_with_media=False, output_path=out, reasoning_tags=None),
        bootstrap_iters=0,
    )


@pytest.mark.parametrize("name", [each.name for each in PAPER_BENCHMARKS])
def test_the_number_is_that_by_hand_and_that_of_lmms_eval(
    name: str, tasks: dict[str, Task], theirs: Any
) -> None:
    task = tasks[name]
    (benchmark,) = [each for each in PAPER_BENCHMARKS if each.name == name]
    examples = list(task.examples())
    logged = sorted(theirs["samples"][benchmark.task], key=lambda each: each["doc_id"])
    answers = [task.cut(each["filtered_resps"][0].strip()) for each in logged]
    scores = [task.score(answer, each) for answer, each in zip(answers, examples, strict=True)]
    total = task.sum_up(list(zip(examples, answers, strict=True))) if task.sum_up else None
    assert total is not None
    expected, share, metrics = BY_HAND[name]
    assert scores == MATCH(expected)
    assert total.metrics == MATCH(metrics)
    assert total.share == (None if share is None else MATCH(share))
    found = theirs["results"][benchmark.task]
    assert {key: found[f"{key},none"] for key in metrics} == MATCH(metrics)
    again = task.sum_up(list(zip(examples, answers, strict=True))) if task.sum_up else None
    assert again == total  # nothing adds up from one call to the next


def test_our_words_are_those_of_lmms_eval(
    tasks: dict[str, Task], theirs: Any, scripted: ScriptedModel
) -> None:
    for benchmark in PAPER_BENCHMARKS:
        asked = [each.question for each in tasks[benchmark.name].examples()]
        assert asked == [scripted.asked[benchmark.task, number] for number in range(len(asked))]


def test_the_script_follows_the_data(tasks: dict[str, Task]) -> None:
    """Answers about places and the like come from the files, so they are not all alike."""
    rights = read_rights([{"answer": e.answers[0]} for e in tasks["GQA"].examples()])
    assert len(set(say("gqa", rights))) >= 3
    assert "Reference OCR token: " in next(tasks["TextVQA"].examples()).question


def test_a_limit_keeps_pairs_together() -> None:
    (mme,) = gather_tasks(["lmms:mme"], limit=3)
    assert len(list(mme.examples())) == 4
    assert "4 of 6 questions" in mme.version


def test_videos_are_shown_by_their_frames(tasks: dict[str, Task], miniatures: Path) -> None:
    from tokencover_models.pebble.data import make_clip_examples

    clips = {each.scene_id: each.frames for each in make_clip_examples("test", 5)}
    for number, example in enumerate(tasks["MSVD"].examples()):
        (frames,) = example.media
        assert isinstance(frames, list)
        assert len(frames) == 8
        for shown, drawn in zip(frames, clips[number], strict=True):
            pairs = zip(shown.tobytes(), drawn.tobytes(), strict=True)
            assert sum(abs(a - b) for a, b in pairs) / len(drawn.tobytes()) < 16  # compressed
