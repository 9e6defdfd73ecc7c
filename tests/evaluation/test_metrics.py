import pytest

from tokencover.errors import InputError
from tokencover.evaluation.plan import Combination
from tokencover.evaluation.records import Record
from tokencover.evaluation.scoring import (
    ResultRow,
    Summary,
    average_relative,
    compute_relative_average,
    summarize,
)

GROUPS = {"a": "fine", "b": "fine", "c": "coarse"}


def record(number: int, score: float | None, tokens: int = 64) -> Record:
    if score is None:
        return Record(str(number), str(number), failed="Error: no")
    return Record(str(number), str(number), "x", score, tokens, 2.0 * tokens, tokens / 128)


def records(**scores: list[float | None]) -> dict[str, list[Record]]:
    return {
        task: [record(number, score) for number, score in enumerate(values)]
        for task, values in scores.items()
    }


def test_tasks_count_the_same_however_long() -> None:
    found = summarize(records(a=[1, 1, 1, 0], b=[0], c=[0.5]), GROUPS)
    assert found.accuracy == {"a": 0.75, "b": 0, "c": 0.5}
    assert found.groups == {"fine": 0.375, "coarse": 0.5}


def test_failed_examples_are_counted_and_not_scored() -> None:
    found = summarize(records(a=[1, None, 0], b=[None], c=[1]), GROUPS)
    assert found.failed == 2
    assert found.accuracy == {"a": 0.5, "b": None, "c": 1}
    assert found.groups == {"fine": None, "coarse": 1}
    assert (found.tokens, found.mean_tokens, found.flops) == (64, 128, 0.5)


def test_tokens_are_means_over_examples_then_tasks() -> None:
    rows = {"a": [record(0, 1, 10), record(1, 1, 20)], "c": [record(0, 1, 45)]}
    assert summarize(rows, GROUPS).tokens == 30


def test_the_average_is_relative_to_the_unpruned_model() -> None:
    assert average_relative({"a": 40, "b": 90}, {"a": 80, "b": 60, "c": 1}) == 100


@pytest.mark.parametrize("vanilla", [{"a": 1.0}, {"a": 1.0, "b": 0.0}])
def test_an_average_relative_to_nothing_is_refused(vanilla: dict[str, float]) -> None:
    with pytest.raises(InputError, match="scores nothing in b"):
        average_relative({"a": 1, "b": 1}, vanilla)


def test_an_average_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="no benchmark"):
        average_relative({}, {})


def average_against(summary: Summary, unpruned: Summary) -> float | None:
    made = [ResultRow(Combination(None), {}, each, None, None) for each in (summary, unpruned)]
    return compute_relative_average(*made)


def test_rows_have_an_average_where_it_is_defined() -> None:
    unpruned = summarize(records(a=[1, 0], c=[1, 1]), GROUPS)
    pruned = summarize(records(a=[1, 1], c=[1, 0]), GROUPS)
    assert average_against(pruned, unpruned) == 125
    assert average_against(unpruned, unpruned) == 100
    nothing = summarize(records(a=[1, 1], c=[0, 0]), GROUPS)
    assert average_against(pruned, nothing) is None
    failed = summarize(records(a=[1, 1], c=[None, None]), GROUPS)
    assert average_against(failed, unpruned) is None
