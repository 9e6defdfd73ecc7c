from dataclasses import dataclass

import numpy as np
import pytest

from tokencover.errors import InputError
from tokencover.statistics import compute_paired_difference, find_mean_score


@dataclass(frozen=True)
class Record:
    """All that statistics ask of an example."""

    id: str
    cluster: str
    score: float | None


Rows = dict[str, list[Record]]


def rows(scores: dict[str, list[tuple[str, float | None]]]) -> Rows:
    return {
        task: [
            Record(str(number), cluster, score) for number, (cluster, score) in enumerate(values)
        ]
        for task, values in scores.items()
    }


def slow_interval(first: Rows, second: Rows, draws: int, seed: int) -> tuple[float, float]:
    """Draw clusters with replacement, and average their examples task by task."""
    names = list(dict.fromkeys(each.cluster for task in first.values() for each in task))
    rng, means = np.random.default_rng(seed), []
    for pick in rng.integers(len(names), size=(draws, len(names))):
        tasks = []
        for task in first:
            differences = [
                one.score - two.score
                for number in pick
                for one, two in zip(first[task], second[task], strict=True)
                if one.cluster == names[number] and one.score is not None and two.score is not None
            ]
            if differences:
                tasks.append(np.mean(differences))
        means.append(np.mean(tasks))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def random_rows(seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    clusters = {"long": [f"c{number // 3}" for number in range(24)], "short": ["c0", "c1", "d"]}
    return rows(
        {task: [(name, float(rng.random())) for name in names] for task, names in clusters.items()}
    )


def test_it_is_the_bootstrap_over_clusters() -> None:
    first, second = random_rows(1), random_rows(2)
    found = compute_paired_difference(first, second, draws=200, seed=5)
    assert (found.low, found.high) == pytest.approx(slow_interval(first, second, 200, 5))
    means = [
        np.mean([a.score - b.score for a, b in zip(first[task], second[task], strict=True)])  # type: ignore[operator]
        for task in first
    ]
    assert found.mean == pytest.approx(np.mean(means))
    assert found.low < found.mean < found.high


def test_a_seed_settles_it() -> None:
    first, second = random_rows(1), random_rows(2)
    assert compute_paired_difference(first, second) == compute_paired_difference(first, second)
    assert compute_paired_difference(first, second, seed=1) != compute_paired_difference(
        first, second, seed=2
    )


def test_it_turns_around() -> None:
    first, second = random_rows(1), random_rows(2)
    there, back = compute_paired_difference(first, second), compute_paired_difference(second, first)
    assert (there.mean, there.low, there.high) == pytest.approx((-back.mean, -back.high, -back.low))


def test_equal_methods_do_not_differ() -> None:
    found = compute_paired_difference(random_rows(1), random_rows(1))
    assert (found.mean, found.low, found.high) == (0, 0, 0)


def test_questions_about_one_scene_add_no_certainty() -> None:
    scenes: list[tuple[str, float | None]] = [("a", 1.0), ("b", 0.0), ("c", 1.0), ("d", 0.0)]
    nothing: list[tuple[str, float | None]] = [(name, 0.0) for name, _ in scenes]
    once = compute_paired_difference(rows({"t": scenes}), rows({"t": nothing}))
    often = compute_paired_difference(rows({"t": scenes * 5}), rows({"t": nothing * 5}))
    assert once == often


def test_failed_examples_excluded_from_pairs() -> None:
    first = rows({"t": [("a", 1.0), ("b", None), ("c", 1.0)]})
    second = rows({"t": [("a", 0.0), ("b", 1.0), ("c", None)]})
    assert compute_paired_difference(first, second).mean == 1


def test_unpaired_values_raise() -> None:
    one = rows({"t": [("a", 1.0)]})
    with pytest.raises(InputError, match="cannot be paired"):
        compute_paired_difference(one, rows({"u": [("a", 1.0)]}))
    with pytest.raises(InputError, match="t: the results are of different examples"):
        compute_paired_difference(one, rows({"t": [("a", 1.0), ("b", 1.0)]}))
    with pytest.raises(InputError, match="no example that both answered"):
        compute_paired_difference(one, rows({"t": [("a", None)]}))


def test_mean_weights_tasks_equally_without_failures() -> None:
    def records(scores: list[float | None]) -> list[Record]:
        return [Record(str(place), f"{place}", score) for place, score in enumerate(scores)]

    found = find_mean_score([records([1, 1, None, 0, 0, 0]), records([1])])
    assert found is not None
    assert found.mean == pytest.approx((0.4 + 1) / 2)
    assert found.low < found.mean < found.high
    assert find_mean_score([records([1]), records([None])]) is None
    sure = find_mean_score([records([1, 1, 1])])
    assert sure is not None
    assert (sure.mean, sure.low, sure.high) == (1, 1, 1)
