"""What the study asks, and how it sums up: `research/study/run.py` and its parts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tokencover as tc
from research.study.models import ASKED_ELSE, SEEDS, Judge, get_test_model
from research.study.plan import (
    CHOICES,
    COSTS,
    LOWER,
    METHODS,
    MODES,
    build_amounts,
    list_specs,
    make_tasks,
    name_costs,
)
from research.study.run import main
from research.study.tables import (
    Found,
    compute_tau,
    format_agreement,
    format_runs,
    format_similarity,
    make_table,
    read_all,
    show_difference,
)
from tokencover.budget import BudgetMode
from tokencover.errors import InputError
from tokencover.methods import METHODS as REGISTERED
from tokencover.methods import make_method
from tokencover.statistics import Interval
from tokencover_models.pebble import PICTURE_CHECKPOINT
from tokencover_models.pebble.data import PICTURE_TOKENS, draw_scene, make_scene

RUNS = ("validation-seed0", "seed0-exact")
EXTRA = {"final_wipe", "globalcom2"}
"""Not compared: what goes on top of others, and what needs several crops."""


@pytest.fixture(scope="module")
def pebble() -> tuple[Any, Any]:
    return tc.load("pebble")


def run_study(folder: Path) -> None:
    """One judge, which is the bundled model under another name."""

    def get_small(name: str) -> Judge:
        model = os.path.relpath(folder.parent / "models" / name)
        choices = {"mob": ({"after": 1}, {"after": 0})}
        return replace(get_test_model(name), model=model, choices=choices, every={"exact": 1})

    options = "--judges seed0 --methods random mob --modes exact --scenes 1 --validation 1"
    options += f" --workers 1 --timed 0 --out {folder}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["study.py", *options.split()])
        patch.setattr("research.study.run.get_test_model", get_small)
        patch.setattr("research.study.run.make_tasks", lambda *asked: make_tasks(*asked)[:3])
        main()


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a small study left."""
    place = tmp_path_factory.mktemp("study")
    (place / "models").mkdir()
    (place / "models" / "seed0").symlink_to(PICTURE_CHECKPOINT)
    run_study(place / "whole")
    return place / "whole"


def test_a_judge_is_asked_what_its_record_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boulder's part of the study, with pebble in its place."""
    boulder = replace(
        get_test_model("boulder"),
        model="pebble",
        kinds=("exist", "color"),
        methods=("mob", "random"),
        choices={"mob": ({"after": 0},)},
        also=({"method": "mob", "after": 0}, {"method": "random", "after": 2}),
        every={"flops": 1, "exact": 1},
    )
    options = "--judges boulder --scenes 1 --validation 1 --workers 1 --timed 0"
    monkeypatch.setattr("sys.argv", ["study.py", *options.split(), "--out", str(tmp_path)])
    monkeypatch.setattr("research.study.run.get_test_model", {"boulder": boulder}.get)
    main()
    settings = json.loads((tmp_path / "settings-boulder.json").read_text())
    assert set(settings) == {"mob"}
    assert not (tmp_path / "boulder-layer_mean").exists()
    for mode, costs in boulder.costs.items():
        read = read_all(tmp_path, [boulder], mode)
        _, scores, *_ = format_runs(read, mode, costs)
        assert scores.splitlines()[0] == "| score, % | " + " | ".join(costs) + " |"
        asked = [line.split(" | ")[0] for line in scores.splitlines()[2:]]
        assert sorted(asked) == ["| mob", "| random", "| random:after=2"]
    [kinship] = format_similarity(read["boulder"], {"seed 7": read["boulder"]}, mode)
    assert kinship.splitlines()[2].startswith("| boulder, seed 7 | ")


@pytest.mark.parametrize("name", [*SEEDS, *ASKED_ELSE])
def test_what_a_judge_is_asked_is_part_of_the_study(name: str) -> None:
    judge = get_test_model(name)
    assert set(judge.methods) <= set(METHODS)
    assert set(judge.choices) == set(CHOICES)
    for mode, costs in judge.costs.items():
        assert set(costs) <= set(name_costs(mode))
        assert mode in judge.every
    with pytest.raises(InputError, match="seed0"):
        get_test_model(f"no {name}")


@pytest.mark.parametrize("name", [*SEEDS, *ASKED_ELSE])
def test_costs_are_named_from_high_to_low(name: str) -> None:
    """Tables give the largest budget the first name."""
    judge = get_test_model(name)
    for mode in judge.costs:
        amounts = judge.build_amounts(mode)
        budgets = [each.budget for each in amounts]
        assert budgets == sorted(set(budgets), reverse=True)
        assert tuple(each.cost for each in amounts) == judge.costs[mode]


def test_means_over_many_blocks_come_to_the_same_as_operations() -> None:
    """So boulder is not asked at equal means."""
    judge = get_test_model("boulder")
    model = tc.load(judge.model)[0]
    operations, means = (
        build_amounts(model, mode, judge.tokens) for mode in ("flops", "layer_mean")
    )
    for of_operations, of_means in zip(operations, means, strict=False):
        assert of_operations.cost == of_means.cost
        assert 0 < of_operations.budget - of_means.budget <= 3


@pytest.mark.parametrize("mode", MODES)
def test_at_each_cost_the_papers_mob_keeps_its_tokens(pebble: Any, mode: BudgetMode) -> None:
    model, processor = pebble
    inputs = tc.make_inputs(processor, [([draw_scene(make_scene(7))], "what number is here ?")])
    amounts = build_amounts(model, mode, PICTURE_TOKENS)
    assert tuple(amount.cost for amount in amounts) == name_costs(mode)
    for kept, amount in zip(COSTS, amounts, strict=False):
        method = tc.MoB(amount.budget, budget_mode=amount.mode)
        with torch.inference_mode(), tc.prune(model, method, processor=processor) as run:
            model(**inputs, logits_to_keep=1)
        assert len(run.trace[0].kept) == pytest.approx(kept, abs=1)


def test_lower_costs_are_reached_before_the_decoder_only(pebble: Any) -> None:
    model, processor = pebble
    inputs = tc.make_inputs(processor, [([draw_scene(make_scene(7))], "what number is here ?")])
    for tokens, amount in zip(
        LOWER, build_amounts(model, "flops", PICTURE_TOKENS)[len(COSTS) :], strict=True
    ):
        before, inside = (tc.MoB(amount.budget, budget_mode="flops", after=at) for at in (0, 1))
        with torch.inference_mode(), tc.prune(model, before, processor=processor) as run:
            model(**inputs, logits_to_keep=1)
        assert len(run.trace[0].kept) == tokens
        with tc.prune(model, inside, processor=processor), pytest.raises(InputError, match="reach"):
            model(**inputs, logits_to_keep=1)


@pytest.mark.parametrize("every", [2, 4, 7])
def test_every_scene_is_asked_a_part_of_the_kinds(every: int) -> None:
    tasks = make_tasks("pebble", "test", 2 * every, every)
    asked = {int(each.id): 0 for task in tasks for each in task.examples()}
    for task in tasks:
        for example in task.examples():
            asked[int(example.id)] += 1
    assert sum(asked.values()) == len(tasks) * 2
    assert max(asked.values()) - min(asked.values()) <= 1


def test_methods_of_the_study_are_registered(pebble: Any) -> None:
    assert set(METHODS) <= {method.name for method in REGISTERED} - EXTRA
    amounts = build_amounts(pebble[0], "exact", PICTURE_TOKENS)
    specs = list_specs(["mob", "fastv"], {"fastv": {"after": 3}}, amounts)
    assert len(specs) == 2 * len(COSTS)
    assert {getattr(make_method(spec), "after", None) for spec in specs} == {1, 3}


def test_agreement_is_told() -> None:
    one = {("a", "high"): Found(0.9, 0.2, None), ("b", "high"): Found(0.5, 0.2, None)}
    other = {**one, ("b", "high"): Found(0.95, 0.2, None)}
    assert compute_tau(one, one, "high") == 1
    assert compute_tau(one, other, "high") == -1
    told = format_agreement({"one": one, "other": other, "third": one}, ["high"]).splitlines()
    assert told[2:] == [
        "| one, other | -1.00 |",
        "| one, third | 1.00 |",
        "| other, third | -1.00 |",
    ]


def test_differences_beyond_doubt_are_counted() -> None:
    def differ(low: float, high: float) -> dict[tuple[str, str], Found | None]:
        return {("a", "high"): Found(0.9, 0.2, Interval((low + high) / 2, low, high))}

    runs = {"one": differ(0.01, 0.03), "other": differ(-0.02, 0.02), "third": differ(0.02, 0.04)}
    table = make_table("minus b", runs, ["high", "low"], show_difference)
    assert table.splitlines()[2] == "| a | +1.7, 2 above | - |"


def test_tables_tell_what_finished_runs_found(study: Path) -> None:
    read = read_all(study, [get_test_model("seed0"), get_test_model("seed7")], "exact")
    assert list(read) == ["seed 0"]
    unpruned, *tables = format_runs(read, "exact", name_costs("exact"))
    assert unpruned.startswith("Unpruned: seed 0 ")
    scores, operations, *compared = [table.splitlines() for table in tables]
    assert scores[0] == "| score, % | " + " | ".join(name_costs("exact")) + " |"
    assert {line.split(" | ")[0] for line in scores[2:]} == {"| random", "| mob"}
    assert all(line.count(".") == len(COSTS) for line in [*scores[2:], *operations[2:]])
    assert [table[0].split(" | ")[0] for table in compared] == ["| minus mob", "| minus mob_stages"]
    own = next(line for line in compared[0] if line.startswith("| mob "))
    assert set(own.split("|")[2:-1]) == {"  "}


def test_settings_are_chosen_with_the_model_that_is_asked(study: Path) -> None:
    assert set(json.loads((study / "settings-seed0.json").read_text())) == {"mob"}
    asked = [json.loads((study / name / "run.json").read_text()) for name in RUNS]
    assert asked[0]["model"] == asked[1]["model"]
    assert not Path(asked[0]["model"]["name"]).is_absolute()


def test_settings_that_were_not_chosen_yet_are(study: Path) -> None:
    """After a study of other methods; what was chosen for those stays."""
    folder, name = study.parent / "more", "settings-seed0.json"
    folder.mkdir()
    before = {"fastv": {"after": 2}}
    (folder / name).write_text(json.dumps(before))
    run_study(folder)
    chosen = json.loads((study / name).read_text())
    assert json.loads((folder / name).read_text()) == {**before, **chosen}


def test_a_judge_that_is_not_known_is_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["study.py", "--judges", "seed1", "pebbles", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", asked)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "'pebbles' is not known" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_study_that_was_stopped_goes_on(study: Path) -> None:
    whole, halved = study, study.parent / "halved"
    assert "## Equal kept tokens" in (whole / "study.md").read_text()
    files = sorted(path.relative_to(whole) for path in whole.rglob("*.json"))
    begun = [name for name in files if name.name == "run.json" or "color" in name.name]
    for name in begun:
        (halved / name).parent.mkdir(parents=True, exist_ok=True)
        (halved / name).write_bytes((whole / name).read_bytes())
    run_study(halved)
    assert (halved / "study.md").read_bytes() == (whole / "study.md").read_bytes()
    assert files == sorted(path.relative_to(halved) for path in halved.rglob("*.json"))
    for name in files:
        assert (whole / name).read_bytes() == (halved / name).read_bytes(), name
