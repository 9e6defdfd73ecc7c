import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.evaluation.running import contents, do, image_task
from tokencover.errors import BudgetError, InputError
from tokencover.evaluation import Task, VisionLanguageModel, load_tasks
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring, Timing
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.records import Scores
from tokencover.evaluation.runner import ExampleError, GenerationSettings, score, time_first_tokens
from tokencover.methods import FastV, GlobalCom2, Method, MoB, Random, View
from tokencover.methods.base import Choice
from tokencover.pruning import prune


@pytest.fixture(scope="module")
def color() -> Task:
    return load_tasks(["pebble/color"], limit=3)[0]


def scores(
    model: VisionLanguageModel, method: Method | None, task: Task, **settings: Any
) -> Scores:
    return score(model, Scoring(Combination(method), task), GenerationSettings(**settings))


def file_task(path: Path) -> Task:
    return load_tasks([str(path)])[0]


def test_the_unpruned_model_is_asked(pebble: VisionLanguageModel, color: Task) -> None:
    examples = list(color.examples())
    expected = pebble.answer(pebble.make_inputs(examples))
    records = scores(pebble, None, color).records
    assert [each.answer for each in records] == expected
    assert [each.id for each in records] == [each.id for each in examples]
    assert [each.score for each in records] == [
        float(answer == each.answers[0]) for answer, each in zip(expected, examples, strict=True)
    ]
    assert {(each.tokens, each.mean_tokens, each.flops) for each in records} == {(576, 576.0, 1.0)}


def test_the_pruned_model_is_asked(
    pebble: VisionLanguageModel, color: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = list(color.examples())
    with prune(pebble.model, MoB(64), processor=pebble.processor) as run:
        expected = pebble.answer(pebble.make_inputs(examples))
    told: list[tuple[int, int]] = []
    work, progress = Scoring(Combination(MoB(64)), color), Progress(io.StringIO(), 1)
    monkeypatch.setattr(progress, "advance", lambda *done: told.append(done))
    records = score(pebble, work, GenerationSettings(2), progress).records
    assert [each.answer for each in records] == expected
    depth = len(run.trace[0].tokens_per_layer)
    for record, trace in zip(records, run.trace, strict=True):
        assert record.tokens == 64
        assert record.mean_tokens == pytest.approx((576 + (depth - 1) * 64) / depth)
        assert record.flops == trace.flops / trace.flops_unpruned
    assert told == [(2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (GlobalCom2(64), "only one view"),
        (FastV(64, after=99), "after=99"),
        (FastV(64, budget_mode="layer_mean"), "cannot be reached"),
    ],
)
def test_a_method_that_cannot_run_says_why(
    pebble: VisionLanguageModel, color: Task, method: Method, reason: str
) -> None:
    found = scores(pebble, method, color)
    assert not found.records
    assert reason in str(found.cannot)
    timing = time_first_tokens(
        pebble, Timing(Combination(method), color), GenerationSettings(2), batches=1
    )
    assert reason in str(timing.cannot)
    assert timing.ratio is None
    assert scores(pebble, None, color, batch_size=3).cannot is None


@dataclass(frozen=True)
class Picky(Random):
    """Refuses long questions."""

    name: ClassVar[str] = "picky"
    reads_prompt = True
    words: int = 0

    def choose(self, view: View) -> Choice:
        if int(view.prompt_mask.sum(1).max()) > self.words:
            raise InputError("this question is too long")
        return super().choose(view)


@pytest.fixture
def one_long(tmp_path: Path) -> Task:
    """Three questions, the first of which is longer than the others."""
    path = image_task(tmp_path / "asked.jsonl", examples=3, question="which place is this ?")
    first, *others = path.read_text().splitlines()
    long = first.replace("which place", "is this or is this or which place")
    path.write_text("\n".join([long, *others]))
    return file_task(path)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_method_that_refuses_one_example_can_run(
    pebble: VisionLanguageModel, one_long: Task, batch_size: int
) -> None:
    method = Picky(64, words=6)
    with pytest.raises(ExampleError, match=r"example q0 failed .*too long.*--keep-going"):
        scores(pebble, method, one_long, batch_size=batch_size)
    found = scores(pebble, method, one_long, batch_size=batch_size, keep_going=True)
    assert [each.failed for each in found.records] == [
        "InputError: this question is too long",
        None,
        None,
    ]


def test_a_method_that_refuses_all_examples_cannot_run(
    pebble: VisionLanguageModel, one_long: Task
) -> None:
    found = scores(pebble, Picky(64, words=1), one_long, batch_size=2)
    assert found.cannot == "this question is too long"


@dataclass(frozen=True)
class Dear(Random):
    """Spends more on long questions than there is."""

    name: ClassVar[str] = "dear"
    reads_prompt = True

    def choose(self, view: View) -> Choice:
        if int(view.prompt_mask.sum(1).max()) > 6:
            raise BudgetError("64 tokens cannot be reached")
        return super().choose(view)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_budget_that_one_example_exceeds_is_not_met(
    pebble: VisionLanguageModel, one_long: Task, batch_size: int
) -> None:
    examples = list(one_long.examples())
    task = replace(one_long, examples=lambda: reversed(examples))
    found = scores(pebble, Dear(64), task, batch_size=batch_size)
    assert found.cannot == "example q0: 64 tokens cannot be reached"
    assert not found.records
    found = scores(pebble, Dear(64), task, batch_size=batch_size, keep_going=True)
    assert [each.failed is None for each in found.records] == [True, True, False]


@dataclass(frozen=True)
class Buggy(Random):
    """Has a mistake in it."""

    name: ClassVar[str] = "buggy"

    def choose(self, view: View) -> Choice:
        raise IndexError("index 7 is out of range")


def test_a_mistake_in_a_method_is_not_a_refusal(pebble: VisionLanguageModel, color: Task) -> None:
    with pytest.raises(ExampleError, match="IndexError: index 7"):
        scores(pebble, Buggy(64), color)
    found = scores(pebble, Buggy(64), color, keep_going=True)
    assert found.cannot is None
    assert [each.failed for each in found.records] == ["IndexError: index 7 is out of range"] * 3
    assert all(each.answer is None and each.score is None for each in found.records)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_broken_picture_stops_the_run(
    pebble: VisionLanguageModel, broken_task: Path, batch_size: int
) -> None:
    with pytest.raises(ExampleError, match=r"example q1 failed \(mob 64, asked\).*1\.png"):
        scores(pebble, MoB(64), file_task(broken_task), batch_size=batch_size)


def test_a_broken_picture_is_counted(pebble: VisionLanguageModel, broken_task: Path) -> None:
    first, second, third = scores(pebble, MoB(64), file_task(broken_task), keep_going=True).records
    assert second.failed is not None
    assert "1.png" in second.failed
    assert second.score is None
    assert first.answer
    assert third.answer
    assert first.tokens == third.tokens == 64


class Cramped(VisionLanguageModel):
    """Has no room for two questions at once."""

    def answer(self, inputs: Any, *, max_new_tokens: int = 16) -> list[str]:
        if len(inputs["input_ids"]) > 1:
            raise MemoryError("out of memory")
        return super().answer(inputs, max_new_tokens=max_new_tokens)


def test_a_batch_that_fails_together_is_named(pebble: VisionLanguageModel, color: Task) -> None:
    model = Cramped(pebble.name, pebble.model, pebble.processor)
    with pytest.raises(ExampleError, match=r"out of memory.*smaller --batch-size than 2"):
        scores(model, None, color, batch_size=2)
    found = scores(model, None, color, batch_size=2, keep_going=True)
    assert found == scores(pebble, None, color, batch_size=1)


@pytest.mark.parametrize("settings", [{"batch_size": 0}, {"max_new_tokens": -1}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at least 1"):
        GenerationSettings(**settings)


def test_times_are_measured_by_turns(
    pebble: VisionLanguageModel, color: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, bool]] = []
    plain = VisionLanguageModel.answer

    def watched(self: VisionLanguageModel, inputs: Any, *, max_new_tokens: int = 16) -> list[str]:
        assert max_new_tokens == 1
        decoder = self.model.model.language_model
        hooked = any(layer._forward_pre_hooks for layer in decoder.layers)
        asked.append((len(inputs["input_ids"]), hooked))
        return plain(self, inputs, max_new_tokens=max_new_tokens)

    monkeypatch.setattr(VisionLanguageModel, "answer", watched)
    work = Timing(Combination(MoB(64)), color)
    seconds = time_first_tokens(pebble, work, GenerationSettings(2), batches=2)
    assert asked == [(1, False), (2, False), (1, True), (2, True)] * 2
    assert len(seconds.unpruned) == len(seconds.pruned) == 2
    assert min(*seconds.unpruned, *seconds.pruned) > 0
    found = seconds.ratio
    assert found == pytest.approx(sum(seconds.pruned) / sum(seconds.unpruned))


class Stopping(VisionLanguageModel):
    """Is interrupted when it is asked for the n-th time."""

    left: ClassVar[int] = 0

    def answer(self, inputs: Any, *, max_new_tokens: int = 16) -> list[str]:
        type(self).left -= 1
        if type(self).left < 0:
            raise KeyboardInterrupt
        return super().answer(inputs, max_new_tokens=max_new_tokens)


def small_plan(methods: Sequence[Method]) -> EvaluationPlan:
    tasks = load_tasks(["pebble/color", "pebble/place"], limit=2)
    made = (Combination(None), *map(Combination, methods))
    return EvaluationPlan(made, tuple(tasks), timed=False)


def test_an_interrupted_run_goes_on(pebble: VisionLanguageModel, tmp_path: Path) -> None:
    plan = small_plan([MoB(64), GlobalCom2(64)])
    do(pebble, plan, tmp_path / "whole")
    stopping = Stopping(pebble.name, pebble.model, pebble.processor)
    Stopping.left = 3
    with pytest.raises(KeyboardInterrupt):
        do(stopping, plan, tmp_path / "parts")
    written = contents(tmp_path / "parts")
    assert len(written) == 1 + 3
    do(pebble, plan, tmp_path / "parts")
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert len(contents(tmp_path / "whole")) == 1 + 6


def test_nothing_is_asked_twice(pebble: VisionLanguageModel, tmp_path: Path) -> None:
    do(pebble, small_plan([MoB(64)]), tmp_path)
    stopping = Stopping(pebble.name, pebble.model, pebble.processor)
    Stopping.left = 0
    do(stopping, small_plan([MoB(64)]), tmp_path)
    Stopping.left = 2
    results, _ = do(stopping, small_plan([MoB(64), FastV(64)]), tmp_path)
    assert Stopping.left == 0
    assert all(results.is_finished(unit) for unit in small_plan([MoB(64), FastV(64)]).work)


def test_what_goes_wrong_is_said_once(
    pebble: VisionLanguageModel, broken_task: Path, tmp_path: Path
) -> None:
    plan = small_plan([GlobalCom2(64)])
    _, said = do(pebble, plan, tmp_path / "refused")
    assert said.count("globalcom2 64: cannot: ") == 1
    plan = EvaluationPlan((Combination(None),), (file_task(broken_task),))
    _, said = do(pebble, plan, tmp_path / "broken", GenerationSettings(keep_going=True))
    assert "unpruned, asked: example q1 failed: InputError" in said


def test_method_that_rejects_only_the_first_examples_can_run(
    pebble: VisionLanguageModel, tmp_path: Path
) -> None:
    """More examples are tried than those of the first batch and the one after it."""
    path = image_task(tmp_path / "many.jsonl", examples=24, question="which place is this ?")
    lines = path.read_text().splitlines()
    question = "is this or is this or which place"
    lines[:5] = [line.replace("which place", question) for line in lines[:5]]
    path.write_text("\n".join(lines))
    with pytest.raises(ExampleError, match="example q0 failed"):
        scores(pebble, Picky(64, words=6), file_task(path), batch_size=4)
