import math
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.evaluation.drawings import list_records, read_charts
from tests.evaluation.made_results import open_folder, task, write
from tokencover import evaluation
from tokencover.budget import Split
from tokencover.errors import InputError
from tokencover.evaluation import VisionLanguageModel
from tokencover.evaluation.ablation import (
    FOLD_SHARES,
    PROMPT_SHARES,
    AblationSetting,
    choose_layers,
    mean_relative_slope,
    measure,
    vary_folds,
    vary_layers,
    vary_prompt_budgets,
)
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring
from tokencover.evaluation.records import Scores
from tokencover.evaluation.report.ablations import (
    Ablation,
    list_slopes,
    make_ablation_charts,
    make_ablation_markdown,
    make_ablation_page,
)
from tokencover.evaluation.scoring import collect
from tokencover.evaluation.store import ResultsFolder
from tokencover.methods import MoB


def test_prompt_budgets_go_from_none_to_all() -> None:
    found = vary_prompt_budgets([64], PROMPT_SHARES)
    assert [each.x for each in found] == [0, 8, 16, 24, 32, 40, 48, 56, 64]
    assert {each.curve for each in found} == {"K = 64"}
    half = found[4]
    assert half.method == MoB(64, split=Split(32, 32, 4))  # the paper's row for 64 tokens
    assert half.name == "K = 64, Kp = 32 (50%)"
    assert found[0].method.split == Split(0, 64, 1)


def test_shares_that_round_alike_are_tried_once() -> None:
    found = vary_prompt_budgets([4, 2], [0.5, 0.45, 0.0])
    assert [(each.curve, each.x) for each in found] == [
        *[("K = 4", 0), ("K = 4", 2)],
        *[("K = 2", 0), ("K = 2", 1)],
    ]


def test_folds_are_the_columns_of_the_papers_table_6() -> None:
    found = vary_folds([64, 128, 192], FOLD_SHARES)
    tried: dict[str, list[int]] = {}
    for each in found:
        split = each.method.split
        assert isinstance(split, Split)
        tried.setdefault(each.curve, []).append(split.fold)
        assert each.x == split.fold / split.prompt_budget
    assert tried == {
        "K = 64, Kp = 32": [2, 4, 8, 16, 32],
        "K = 128, Kp = 64": [4, 8, 16, 32, 64],
        "K = 192, Kp = 96": [6, 12, 24, 48, 96],
    }
    (quarter,) = vary_folds([64], [0.125], prompt_share=0.25)
    assert quarter.method.split == Split(16, 48, 2)
    (least,) = vary_folds([2], [0.01, 0.0], prompt_share=0.01)
    assert least.method.split == Split(1, 1, 1)


def test_layers_may_have_shares_as_budgets() -> None:
    found = vary_layers([0.111], [3, 0, 3])
    assert [each.method for each in found] == [MoB(0.111, after=0), MoB(0.111, after=3)]
    assert choose_layers(6) == [0, 1, 2, 3, 4, 5]
    assert choose_layers(32) == [0, 1, 2, 3, 4, 8, 12, 16, 20, 24, 28]
    assert choose_layers(2) == [0, 1]


def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(InputError, match=r"got the fraction 0\.5"):
        vary_prompt_budgets([0.5], PROMPT_SHARES)
    with pytest.raises(InputError, match=r"between 0 and 1, got 1\.5"):
        vary_folds([64], [1.5])


def test_the_slope_is_the_papers_formula() -> None:
    # (60 - 50) / 50 + (45 - 60) / 60 = 0.2 - 0.25, over 32 tokens
    assert mean_relative_slope([0, 16, 32], [50, 60, 45]) == pytest.approx(100 * -0.05 / 32)
    assert mean_relative_slope([0, 1], [1, 2]) == pytest.approx(100)
    # It is relative: the same curve in percent has the same slope.
    assert mean_relative_slope([2, 3, 7], [0.2, 0.3, 0.1]) == pytest.approx(
        mean_relative_slope([2, 3, 7], [20, 30, 10])
    )
    assert mean_relative_slope([0, 1], [1, 0]) == pytest.approx(-100)


def test_a_slope_that_is_not_defined() -> None:
    assert mean_relative_slope([1], [5]) is None
    assert mean_relative_slope([0, 1, 2], [1, 0, 1]) is None
    with pytest.raises(InputError, match="must ascend"):
        mean_relative_slope([0, 2, 2], [1, 1, 1])
    with pytest.raises(InputError, match="2 x need as many values, got 1"):
        mean_relative_slope([0, 1], [1])


SETTINGS = vary_prompt_budgets([64], [0, 0.25, 1])
SCORES: list[dict[str, list[float | None]]] = [
    {"GQA": [1, 0, 0, 0], "VizWiz": [1, 1, 1, 1]},
    {"GQA": [1, 1, 0, 0], "VizWiz": [1, 1, 1, 0]},
    {"GQA": [1, 1, 1, 0], "VizWiz": [1, 1, 0, 0]},
]


def made(folder: Path, settings: list[AblationSetting], flops: list[float]) -> Ablation:
    """An ablation of results made by hand."""
    results = open_folder(folder)
    write(results, None, {"GQA": [1, 1, 1, 1], "VizWiz": [1, 1, 1, 1]})
    for setting, scores, share in zip(settings, SCORES, flops, strict=True):
        write(results, setting.method, scores, tokens=64, flops=share)
    return of(results, settings)


def of(results: ResultsFolder, settings: list[AblationSetting]) -> Ablation:
    tasks = (task("GQA"), task("VizWiz"))
    combinations = (Combination(None), *(each.combination for each in settings))
    rows = collect(EvaluationPlan(combinations, tasks, timed=False), results)
    return Ablation(
        "The prompt's fraction",
        "Kp",
        "pebble",
        tuple(settings),
        {row.combination: row for row in rows},
        {each.name: each.group for each in tasks},
    )


def test_curves_are_measured_over_the_tasks_asked_for(tmp_path: Path) -> None:
    ablation = made(tmp_path, SETTINGS, [0.25, 0.25, 0.25])
    (curve,) = measure(SETTINGS, ablation.rows, ["GQA"]).values()
    assert [each.accuracy.mean for each in curve] == [0.25, 0.5, 0.75]
    (curve,) = measure(SETTINGS, ablation.rows, ["GQA", "VizWiz"]).values()
    assert [each.accuracy.mean for each in curve] == [0.625] * 3
    assert [each.flops for each in curve] == [0.25] * 3


def test_sets_of_tasks_that_are_the_same_come_once(tmp_path: Path) -> None:
    ablation = made(tmp_path, SETTINGS, [0.25] * 3)
    assert ablation.task_sets == {
        "all tasks": ["GQA", "VizWiz"],
        "weak": ["GQA"],
        "strong": ["VizWiz"],
    }


def test_slopes_and_best_settings_are_in_the_table(tmp_path: Path) -> None:
    rows = {row[0]: row[1:] for row in list_slopes(made(tmp_path, SETTINGS, [0.25] * 3))}
    # (0.5 - 0.25) / 0.25 + (0.75 - 0.5) / 0.5 = 1.5, over 64 tokens
    assert rows["weak"] == ["K = 64", "K = 64, Kp = 64 (100%)", "75.0", f"{150 / 64:+.3f}"]
    falling = 100 * (-0.25 - 1 / 3) / 64
    assert rows["strong"] == ["K = 64", "K = 64, Kp = 0 (0%)", "100.0", f"{falling:+.3f}"]
    assert rows["all tasks"][-1] == "+0.000"
    assert math.copysign(1, float(rows["all tasks"][-1])) == 1


def test_text_and_page_tell_the_same(tmp_path: Path) -> None:
    ablation = made(tmp_path, SETTINGS, [0.25] * 3)
    text, html = make_ablation_markdown(ablation), make_ablation_page(ablation)
    assert "| unpruned | 100.0 [100.0, 100.0] | 100.0 | 100.0 | 576.0 | 100.0 |" in text
    assert "| K = 64, Kp = 16 (25%) | 62.5 [" in text
    assert '<th scope="row">K = 64, Kp = 16 (25%)</th>' in html
    found = read_charts(html).values()
    assert [each["title"] for each in found] == ["all tasks", "weak", "strong"]
    for each in found:
        points = [record for record in list_records(each) if "x" in record]
        assert len(points) == 3
        assert all(record["low"] <= record["y"] <= record["high"] for record in points)
    assert make_ablation_page(ablation) == html


def test_cost_is_drawn_where_it_varies(tmp_path: Path) -> None:
    same = made(tmp_path / "same", SETTINGS, [0.25] * 3)
    assert list(make_ablation_charts(same)) == ["00-all tasks", "01-weak", "02-strong"]
    varied = made(tmp_path / "varied", vary_layers([64], [0, 1, 2]), [0.1, 0.2, 0.4])
    drawn = make_ablation_charts(varied)
    assert list(drawn)[-1] == "cost"
    points = [each for each in list_records(drawn["cost"]) if "x" in each]
    assert [each["x"] for each in points] == [10.0, 20.0, 40.0]


def test_what_cannot_run_is_said_and_left_out(tmp_path: Path) -> None:
    results = open_folder(tmp_path)
    write(results, None, {"GQA": [1, 1], "VizWiz": [1, 1]})
    write(results, SETTINGS[0].method, {"GQA": [1, 0], "VizWiz": [1, None]}, tokens=64)
    for setting in SETTINGS[1:]:
        for name in ("GQA", "VizWiz"):
            work = Scoring(setting.combination, task(name))
            results.write(work, Scores(cannot="too small"))
    ablation = of(results, SETTINGS)
    text = make_ablation_markdown(ablation)
    assert "K = 64, Kp = 16 (25%) cannot run: too small" in text
    assert "K = 64, Kp = 0 (0%): 1 examples failed, not scored." in text
    assert {row[-1] for row in list_slopes(ablation)} == {"-"}
    first = next(iter(read_charts(make_ablation_page(ablation)).values()))
    assert len([each for each in list_records(first) if "x" in each]) == 1


def command(*arguments: object) -> None:
    call("ablate", *arguments)


SMALL = ("--tasks", "pebble/color", "--limit", 1, "--budgets", "8", "--max-new-tokens", 2)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, pebble: VisionLanguageModel) -> None:
    monkeypatch.setattr(evaluation, "load_model", lambda *_, **__: pebble)


@pytest.mark.usefixtures("loaded")
def test_the_command_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("--what", "layer", *SMALL, "--values", "0,1", "--out", tmp_path)
    first = capsys.readouterr()
    assert "| K = 8, after 1 |" in first.out
    assert "are done already" not in first.err
    written = {path.name: path.read_bytes() for path in (tmp_path / "layer").iterdir()}
    assert set(written) == {"00-all-tasks.svg", "ablation.html", "ablation.md", "cost.svg"}
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "results").iterdir()}
    command("--what", "layer", *SMALL, "--values", "0,1", "--out", tmp_path)
    second = capsys.readouterr()
    assert "3 of 3 are done already" in second.err
    assert second.out == first.out
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert {path.name: path.read_bytes() for path in (tmp_path / "layer").iterdir()} == written


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("what", "line"),
    [("k-prompt", "| K = 8, Kp = 4 (50%) |"), ("fold", "| K = 8, Kp = 4, k = 2 (50.0%) |")],
)
def test_settings_reach_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, line: str
) -> None:
    command("--what", what, *SMALL, "--values", "0.5", "--out", tmp_path)
    shown = next(each for each in capsys.readouterr().out.splitlines() if each.startswith(line))
    assert " 8.0 |" in shown  # the tokens left
    names = [path.name for path in (tmp_path / "results").iterdir()]
    assert any("prompt_budget_4_visual_budget_4" in name for name in names)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--budgets", "many"], "--budgets must be a count"),
        (["--values", "a,b"], "--values must be comma-separated numbers"),
        (["--budgets", ""], "There is no budget"),
        (["--tasks", ""], "--tasks is empty"),
        (["--budgets", "0.5"], "got the fraction"),
    ],
)
def test_wrong_options_write_nothing(tmp_path: Path, arguments: list[str], why: str) -> None:
    with pytest.raises(InputError, match=why):
        command("--what", "k-prompt", "--limit", 2, *arguments, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()
