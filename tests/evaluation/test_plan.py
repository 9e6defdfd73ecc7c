import pytest

from tokencover.budget import Split
from tokencover.errors import InputError
from tokencover.evaluation import load_tasks
from tokencover.evaluation.plan import (
    Combination,
    EvaluationPlan,
    Scoring,
    Timing,
    make_combinations,
)
from tokencover.methods import FastV, FinalWipe, Method, MoB, Spec


def test_the_unpruned_model_comes_first_then_budget_by_budget() -> None:
    found = make_combinations([{"method": "mob"}, {"method": "fastv"}], [64, 0.5])
    assert [each.method for each in found] == [None, MoB(64), FastV(64), MoB(0.5), FastV(0.5)]


def test_budget_modes_are_set_unless_the_method_says_its_own() -> None:
    specs: list[Spec] = [{"method": "mob"}, {"method": "fastv", "budget_mode": "flops"}]
    _, mob, fastv = make_combinations(specs, [64], "layer_mean")
    assert mob.method == MoB(64, budget_mode="layer_mean")
    assert fastv.method == FastV(64, budget_mode="flops")
    assert (mob.budget, fastv.budget) == ("64 layer_mean", "64 flops")


def test_a_budget_goes_to_the_method_within() -> None:
    _, wiped = make_combinations([{"method": "final_wipe", "inner": {"method": "mob"}}], [64])
    assert wiped.method == FinalWipe(MoB(64))
    assert (wiped.label, wiped.budget) == ("final_wipe:inner=mob", "64")


def test_a_method_with_a_budget_of_its_own_is_run_at_that_one() -> None:
    specs: list[Spec] = [{"method": "fastv", "budget": 7, "after": 3}, {"method": "mob"}]
    _, mob, fastv = make_combinations(specs, [64])
    assert mob.method == MoB(64)
    assert fastv.method == FastV(7, after=3)
    assert str(fastv) == "fastv:after=3 7"


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ([{"method": "magic"}], "'magic'"),
        ([{"method": "final_wipe"}], "--method-json"),
        ([{"after": 2}], '"method" name'),
        ([{"method": "fastv", "behind": 2}], "no setting behind"),
        ([{"method": "mob"}, {"method": "mob", "budget": 64}], "mob 64 is given twice"),
    ],
)
def test_methods_that_do_not_exist_are_refused(
    specs: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_combinations(specs, [64])


def test_methods_need_a_budget() -> None:
    with pytest.raises(InputError, match="mob has no budget"):
        make_combinations([{"method": "mob"}], [])
    with pytest.raises(InputError, match="got 0"):
        make_combinations([{"method": "mob"}], [0])
    assert make_combinations([], []) == (Combination(None),)


def plan() -> EvaluationPlan:
    tasks = load_tasks(["pebble/color", "pebble/place"], limit=2)
    return EvaluationPlan(
        make_combinations([{"method": "mob"}, {"method": "fastv"}], [64, 32]), tuple(tasks)
    )


def test_files_have_names_of_their_own() -> None:
    files = [unit.file for unit in plan().work]
    assert len(set(files)) == len(files) == 5 * 2 + 4
    assert files[0].startswith("scores-unpruned-pebble_color-")
    assert sum(name.startswith("timing-") for name in files) == 4
    first, second = (Combination(FastV(64, after=after)) for after in (3, 4))
    task = plan().tasks[0]
    assert Scoring(first, task).file != Scoring(second, task).file
    assert Scoring(first, task).file != Timing(first, task).file


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        (MoB(64), "mob", "mob"),
        (FastV(64, after=3), "fastv(after=3)", "fastv:after=3"),
        (
            MoB(64, after=2, split=Split(4, 60, 1)),
            "mob(split=Split(prompt_budget=4, visual_budget=60, fold=1), after=2)",
            "mob:split=Split(prompt_budget=4, visual_budget=60, fold=1):after=2",
        ),
        (FinalWipe(MoB(64)), "final_wipe(inner=mob)", "final_wipe:inner=mob"),
    ],
)
def test_labels_of_earlier_versions_are_understood(method: Method, old: str, new: str) -> None:
    combination = Combination(method)
    assert combination.label == new
    assert combination.goes_by(new)
    assert combination.goes_by(old)
    assert not combination.goes_by("mob:after=3")


def test_files_are_called_as_earlier_versions_called_them() -> None:
    (color, *_) = plan().tasks
    method = MoB(64, after=2, split=Split(4, 60, 1))
    assert Scoring(Combination(method), color).file == (
        "scores-mob_split_Split_prompt_budget_4_visual_budget_60_fold_1_afte-64-pebble_color-"
        "b9462487.json"
    )


@pytest.mark.parametrize("processes", [1, 2, 3, 20])
def test_processes_share_the_work(processes: int) -> None:
    whole = [unit.file for unit in plan().work]
    parts = [plan().share(number, processes) for number in range(processes)]
    assert sorted(unit.file for part in parts for unit in part) == sorted(whole)


def test_there_is_no_third_of_two_processes() -> None:
    with pytest.raises(InputError, match="no process 2 of 2"):
        plan().share(2, 2)
