"""Figures and tables as the paper has them, from stored results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluation.drawings import list_records
from tests.evaluation.made_results import open_folder, write
from tokencover.budget import Profile
from tokencover.evaluation import read_folder, vary_folds, vary_layers, vary_prompt_budgets
from tokencover.evaluation.report import collect_ablations, make_figures, make_latex, make_page
from tokencover.evaluation.report.charts import make_histogram
from tokencover.methods import DART, FastV, Method, MoB, Random

RIGHT = {"GQA": [1, 1, 1, 1], "POPE": [1, 1, 1, 1], "VizWiz": [1, 1, 1, 1]}


def score(count: int) -> dict[str, list[float | None]]:
    """So many correct answers of four in each task."""
    return {task: [float(place < count) for place in range(4)] for task in RIGHT}


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    results = open_folder(tmp_path / "compared")
    write(results, None, RIGHT)
    methods: list[tuple[Method, int]] = [
        (MoB(64), 3), (FastV(64), 2), (DART(64), 1), (Random(64), 0)
    ]  # fmt: skip
    for method, count in methods:
        write(results, method, score(count), tokens=64, flops=0.2)
    return results.folder


@pytest.fixture
def ablated(tmp_path: Path) -> Path:
    results = open_folder(tmp_path / "ablated")
    write(results, None, RIGHT)
    settings = [
        *vary_prompt_budgets([64, 128], [0.25, 0.5, 1]),
        *vary_folds([64], [1 / 16, 1 / 8, 1], 0.5),
        *vary_layers([64], [0, 1, 2]),
    ]
    for place, method in enumerate(dict.fromkeys(each.method for each in settings)):
        write(results, method, score(1 + place % 4), tokens=64, flops=0.1 + place / 50)
    return results.folder


def test_tables_have_the_papers_layout(compared: Path) -> None:
    stored = read_folder(compared)
    text = make_latex(stored, "mob")
    assert r"\multicolumn{1}{c}{\textbf{strong}} & \multicolumn{2}{c}{\textbf{weak}}" in text
    assert r"\textbf{Method} & \textbf{Objectives} & VizWiz & GQA & POPE & \textbf{Avg.} \\" in text
    assert r"\emph{Pruning budget} $K=64$; \emph{Token Reduction Rate} = \textbf{88.9\%}" in text
    best, second = r"\cellcolor{blue!10}{75.0}", r"\cellcolor{orange!15}{50.0}"
    average = r"\cellcolor{blue!10}{75.0\%}"
    assert rf"\textbf{{MoB}} (2025) & P V & {best} & {best} & {best} & {average} \\" in text
    assert rf"FastV (2024) & V & {second}" in text
    assert r"Random & -- & 0.0 & 0.0 & 0.0 & 0.0\% \\" in text
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 1


def test_many_methods_have_a_short_table_too(tmp_path: Path) -> None:
    results = open_folder(tmp_path)
    write(results, None, RIGHT)
    for after in range(1, 9):
        write(results, FastV(64, after=after), score(after % 4), tokens=64, flops=0.2)
    write(results, MoB(64), score(3), tokens=64, flops=0.2)
    stored = read_folder(tmp_path)
    text = make_latex(stored, "mob")
    short, _, full = text.partition("tab:comparison-partial")
    assert short.count("FastV (2024)") == 5
    assert full.count("FastV (2024)") == 8


def test_ablations_are_found_wherever_they_were_evaluated(ablated: Path, compared: Path) -> None:
    found = collect_ablations(read_folder(ablated))
    assert found.prompt_budgets is not None
    assert found.folds is not None
    assert found.layers is not None
    curves = found.prompt_budgets.curves["all tasks"]
    assert {name: [each.setting.x for each in curve] for name, curve in curves.items()} == {
        "K = 64": [16, 32, 64],
        "K = 128": [32, 64, 128],
    }
    assert [each.x for each in found.folds.settings] == [1 / 16, 1 / 8, 1]
    assert [each.x for each in found.layers.settings] == [0, 1, 2]
    none = collect_ablations(read_folder(compared))
    assert (none.prompt_budgets, none.folds, none.layers) == (None, None, None)


def test_the_papers_figures_are_made(ablated: Path) -> None:
    values = [1.0, 1.1, 1.2, 1.3, 1.8]
    profile = Profile.of("pebble", 1, {"GQA": values, "POPE": [2.0], "VizWiz": values})
    charts = make_figures(read_folder(ablated), profile=profile)
    wanted = {"fig1b", "fig1c-64", "fig3-flops", "fig3-tasks-flops", "fig4-GQA", "fig4-coupling"}
    assert wanted | {"fig5-GQA", "fig6-GQA", "fig6-cost", "fig9-GQA"} <= set(charts)
    curves, boxes = charts["fig4-GQA"]["hconcat"]
    named = charts["fig4-GQA"].get("datasets", {})
    drawn = list_records({**boxes, "datasets": named})
    assert drawn == [
        {"task": "GQA", "least": 1.0, "quarter": 1.1, "median": 1.2, "three_quarters": 1.3,
         "most": 1.8}
    ]  # fmt: skip
    labels = {each["curve"] for each in list_records({**curves, "datasets": named}) if "x" in each}
    assert all("slope" in label for label in labels)
    assert 'id="ablations"' in make_page(read_folder(ablated))


def test_bars_of_a_histogram_stand_on_the_axis() -> None:
    chart = make_histogram([0.0, 0.5, 1.0], [3, 1], "all", None)
    x = chart["layer"][0]["encoding"]["x"]
    assert x["bin"] == "binned"  # without it Vega draws a dash at the height of each count


def test_profiles_of_earlier_versions_have_no_boxes(tmp_path: Path) -> None:
    profile = Profile.of("pebble", 1, {"GQA": [1.0, 2.0]})
    document = profile.document()
    for each in document["tasks"]:
        del each["quartiles"]
    old = Profile.from_document(document)
    assert old.tasks[0].quartiles == ()
    assert profile.tasks[0].quartiles == (1.0, 1.25, 1.5, 1.75, 2.0)
