"""Benchmarks with their own score, stops, and text that methods read as the prompt."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.evaluation.running import do
from tokencover.evaluation import Example, Task, VisionLanguageModel, load_tasks, read_folder
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring
from tokencover.evaluation.runner import GenerationSettings, score
from tokencover.evaluation.scoring import collect
from tokencover.evaluation.tasks import Total
from tokencover.methods import Method, MoB, Random
from tokencover.pruning import prune


@pytest.fixture(scope="module")
def color() -> Task:
    return load_tasks(["pebble/color"], limit=2)[0]


def count_letters(answered: Sequence[tuple[Example, str]]) -> Total:
    letters = sum(len(answer) for _, answer in answered)
    return Total(letters / 1000, {"letters": letters})


def test_a_task_has_a_number_of_its_own(
    pebble: VisionLanguageModel, color: Task, tmp_path: Path
) -> None:
    plan = EvaluationPlan((Combination(None),), (replace(color, sum_up=count_letters),), False)
    results, _ = do(pebble, plan, tmp_path)
    (unit,) = plan.work
    assert isinstance(unit, Scoring)
    scores = results.read(unit)
    letters = sum(len(each.answer or "") for each in scores.records)
    assert letters > 0
    assert (scores.overall, scores.metrics) == (letters / 1000, {"letters": letters})
    for (row,) in (collect(plan, results), read_folder(tmp_path).rows):
        assert row.summary is not None
        assert row.summary.accuracy == {"pebble/color": letters / 1000}


def test_a_task_ends_answers(pebble: VisionLanguageModel, color: Task) -> None:
    def answer(task: Task) -> list[str | None]:
        work = Scoring(Combination(None), task)
        return [each.answer for each in score(pebble, work, GenerationSettings()).records]

    whole = answer(color)
    assert all(each is not None and len(each) > 1 for each in whole)
    first = [str(each)[0] for each in whole]
    rest = tuple({str(each)[1:] for each in whole})
    assert answer(replace(color, stops=rest)) == first
    lengths = {len(str(each).split()) for each in answer(replace(color, max_new_tokens=1))}
    assert lengths == {1}


@pytest.mark.parametrize("method", [MoB(24), Random(24)])
def test_a_method_reads_the_words_that_an_example_names(
    pebble: VisionLanguageModel, color: Task, method: Method
) -> None:
    examples = [
        replace(each, question=f"{each.question} is it big or small ?", prompt_words=each.question)
        for each in color.examples()
    ]
    with prune(
        pebble.model,
        method,
        prompt=[each.prompt_words or "" for each in examples],
        processor=pebble.processor,
    ) as run:
        expected = pebble.answer(pebble.make_inputs(examples))
    kept = [each.kept.tolist() for each in run.trace]
    whole = [replace(each, prompt_words=None) for each in examples]
    with prune(pebble.model, method, processor=pebble.processor) as run:
        pebble.answer(pebble.make_inputs(whole))
    differs = [each.kept.tolist() for each in run.trace] != kept
    assert differs == isinstance(method, MoB)  # so that the words matter to one that reads them
    task = replace(color, examples=lambda: iter(examples))
    records = score(pebble, Scoring(Combination(method), task), GenerationSettings(2)).records
    assert [each.answer for each in records] == expected
