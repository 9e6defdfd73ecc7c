import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.evaluation.drawings import (
    get_colors,
    get_title,
    list_records,
    read_answers,
    read_charts,
)
from tests.evaluation.made_results import GROUPS, open_folder, run_of, task, write
from tokencover.budget.profile import Profile
from tokencover.errors import InputError
from tokencover.evaluation.columns import Rank
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.records import ResultsError, Scores
from tokencover.evaluation.report.changes import compare_runs
from tokencover.evaluation.report.charts import COLORS, FORMATS, choose_looks, write_figures
from tokencover.evaluation.report.kept_images import list_changed_answers, select_rows
from tokencover.evaluation.report.page import make_figures, make_page
from tokencover.evaluation.report.paper_comparison import compare_with_paper, get_paper_model
from tokencover.evaluation.report.text import make_markdown
from tokencover.evaluation.results import read_folder
from tokencover.evaluation.store import ResultsFolder
from tokencover.methods import DART, FastV, MoB, Random
from tokencover.statistics import compute_paired_difference
from tokencover.tables import escape_markdown

WHOLE = {"GQA": [1, 1, 1, 0], "POPE": [1, 1, 1, 1], "VizWiz": [1, 0, 0, 1]}
MOB = {"GQA": [1, 1, 1, 0], "POPE": [1, 1, 0, 1], "VizWiz": [1, 0, 0, 0]}
FASTV = {"GQA": [1, 0, 0, 0], "POPE": [1, 1, 0, 1], "VizWiz": [0, 0, 0, 1]}
RANDOM = {"GQA": [0, 0, 0, 0], "POPE": [0, 1, 0, 0], "VizWiz": [0, 0, 0, 0]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The unpruned model; at 64 tokens MoB, FastV and random; at 128 MoB alone."""
    return filled(open_folder(tmp_path / "results"))


def filled(results: ResultsFolder) -> Path:
    write(results, MoB(64), MOB, tokens=64, flops=0.25, seconds=(2.0, 1.0))
    write(results, None, WHOLE)
    write(results, FastV(64), FASTV, tokens=64, flops=0.4, seconds=(2.0, 1.5))
    write(results, Random(64), RANDOM, tokens=64, flops=0.3)
    write(results, MoB(128), MOB, tokens=128, flops=0.5, seconds=(2.0, 1.5))
    return results.folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of such a folder."""
    return make_page(read_folder(filled(open_folder(tmp_path_factory.mktemp("page")))))


def command(*arguments: object) -> None:
    call("report", *arguments)


def test_the_comparison_is_what_one_computes_by_hand(folder: Path) -> None:
    stored = read_folder(folder)
    table = stored.compare()
    assert table.header[:3] == ("strong", "weak", "Avg. %")
    assert list(table.sections) == ["", "128", "64"]
    unpruned = table.sections[""][0]
    assert [cell.text for cell in unpruned.cells] == [
        *("50.0", "87.5", "100.0", "576.0", "586.0", "100.0", "1.00", "-")
    ]
    lines = {line.row.combination.label: line for line in table.sections["64"]}
    assert list(lines) == ["random", "fastv", "mob"]
    # Avg. of MoB: (0.75 / 0.75 + 0.75 / 1 + 0.25 / 0.5) / 3
    assert [cell.text for cell in lines["mob"].cells] == [
        *("25.0", "75.0", "75.0", "64.0", "74.0", "25.0", "0.50", "-")
    ]
    # Avg. of FastV: (0.25 / 0.75 + 0.75 / 1 + 0.25 / 0.5) / 3
    fastv = [cell.text for cell in lines["fastv"].cells]
    assert fastv[:-1] == ["25.0", "50.0", "52.8", "64.0", "74.0", "40.0", "0.75"]
    rows = {str(row.combination): row for row in stored.rows}
    difference = compute_paired_difference(rows["fastv 64"].records, rows["mob 64"].records)
    assert difference.mean == pytest.approx(-0.5 / 3)
    assert fastv[-1] == f"-16.7 [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    assert lines["random"].cells[6].text == "-"  # it was not timed


def test_best_and_second_are_marked_and_ties_alike(folder: Path, page: str) -> None:
    lines = {
        line.row.combination.label: line for line in read_folder(folder).compare().sections["64"]
    }
    marks = {name: [cell.rank for cell in line.cells[:3]] for name, line in lines.items()}
    assert marks["mob"] == [Rank.BEST] * 3
    assert marks["fastv"] == [Rank.BEST, Rank.SECOND, Rank.SECOND]
    assert marks["random"] == [Rank.SECOND, Rank.NONE, Rank.NONE]
    for line in lines.values():
        assert all(cell.rank is Rank.NONE for cell in line.cells[3:])
    for alone in list(read_folder(folder).compare().sections.values())[
        :2
    ]:  # one method alone wins nothing
        assert all(cell.rank is Rank.NONE for line in alone for cell in line.cells)
    text = make_markdown(read_folder(folder))
    assert "| mob | 64 | **25.0** | **75.0** | **75.0** |" in text
    assert "| fastv | 64 | **25.0** | <u>50.0</u> | <u>52.8</u> |" in text
    best = '<td class="best" data-label="Avg. %">75.0<span class="unseen"> (best)</span></td>'
    assert best in page
    assert '<td class="second" data-label="Avg. %">52.8<' in page


def test_the_table_of_tasks_has_them_all(folder: Path) -> None:
    table = read_folder(folder).compare_tasks()
    assert table.header == ("VizWiz", "GQA", "POPE")  # by group, then by name
    mob = table.sections["64"][-1]
    assert [cell.text for cell in mob.cells] == ["25.0", "75.0", "75.0"]


def test_another_reference(folder: Path) -> None:
    table = read_folder(folder).compare("fastv")
    assert table.header[-1] == "minus fastv [95 %]"
    lines = {line.row.combination.label: line for line in table.sections["64"]}
    assert lines["mob"].cells[-1].text.startswith("+16.7 [")
    assert lines["fastv"].cells[-1].text == "-"


def test_references_may_be_written_as_before(tmp_path: Path) -> None:
    results = open_folder(tmp_path)
    filled(results)
    write(results, FastV(64, after=3), FASTV, tokens=64, flops=0.4)
    stored = read_folder(tmp_path)
    for reference in ("fastv:after=3", "fastv(after=3)"):
        html = make_page(stored, reference=reference)
        assert 'class="reference"><th scope="row">fastv:after=3</th>' in html
        assert html.count('class="reference"') == 2  # here, and in the table of tasks
        mine, rival, *_ = select_rows(stored, reference)
        assert mine.combination.method == FastV(64, after=3)
        assert rival.combination.method == MoB(64)  # the best other at that budget
        chart = read_charts(html)["fig3-flops"]
        assert chart["params"][0]["value"][0] == "fastv:after=3"
    with pytest.raises(InputError, match="no results of dart"):
        select_rows(stored, "dart")


class Balanced(HTMLParser):
    """Checks that elements are closed in order, and gathers what could reach out."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [
            name
            for name, value in attrs
            if name in ("src", "href", "onclick", "onload") and not str(value).startswith("#")
        ]
        if tag not in ("meta", "input"):
            self.open.append(tag)
        assert tag not in ("link", "img", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_sound_and_brings_all_it_needs(page: str) -> None:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert not parser.open
    assert not parser.links  # a browser that fetches nothing is in tests_browser
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert "@import" not in own
    assert "url(" not in own
    assert own.count("</html>") == 1


def test_the_figures_are_there(page: str) -> None:
    charts = read_charts(page)
    assert list(charts) == [
        *("fig3-flops", "fig3-time", "fig3-mean-tokens", "fig3-tasks-flops"),
        *("fig1c-128", "fig1c-64"),
    ]
    assert get_title(charts["fig1c-64"]) == "budget 64"
    points = {
        (each["method"], each["budget"]): each
        for each in list_records(charts["fig3-flops"])
        if "method" in each
    }
    assert set(points) == {("mob", "64"), ("mob", "128"), ("fastv", "64"), ("random", "64")}
    # MoB loses one of four answers in two of three tasks.
    mob = points["mob", "64"]
    assert (mob["flops"], mob["average"]) == (25.0, 75.0)
    assert mob["lost"] == pytest.approx(-100 / 6, abs=0.01)
    assert mob["low"] <= mob["lost"] <= mob["high"]
    timed = {each["method"] for each in list_records(charts["fig3-time"]) if "method" in each}
    assert timed == {"mob", "fastv"}  # random was not timed
    whole = [each for each in list_records(charts["fig3-flops"]) if each.get("name") == "unpruned"]
    assert whole == [{"flops": 100.0, "lost": 0, "name": "unpruned"}]


def test_radars_have_one_scale_and_show_percent_of_the_unpruned_model(page: str) -> None:
    charts = read_charts(page)
    marks = [
        [each["text"] for each in list_records(charts[name]) if "text" in each]
        for name in ("fig1c-128", "fig1c-64")
    ]
    assert marks[0] == marks[1] == ["0", "25", "50", "75", "100"]
    mob = {
        each["task"]: each
        for each in list_records(charts["fig1c-64"])
        if each.get("method") == "mob"
    }
    assert {task: each["value"] for task, each in mob.items()} == {
        "VizWiz": 50.0,
        "GQA": 100.0,
        "POPE": 75.0,
    }
    # The first axis points up; half of the way is half of the radius.
    assert (mob["VizWiz"]["x"], mob["VizWiz"]["y"]) == (0.0, 0.5)


def test_methods_keep_their_colors(page: str) -> None:
    charts = read_charts(page)
    for name in ("fig3-flops", "fig1c-64"):
        colors = get_colors(charts[name])
        assert colors == {method: COLORS[method] for method in ("mob", "fastv", "random")}
    looks = choose_looks(["mob:split=weak", "mob", "theirs"])
    assert looks["mob"].color == looks["mob:split=weak"].color == COLORS["mob"]
    assert looks["mob"].dash != looks["mob:split=weak"].dash
    assert len(set(COLORS.values())) == len(COLORS)


def test_coupling_is_drawn_with_its_threshold(folder: Path) -> None:
    draw = random.Random(0)
    values = {
        "b": [draw.gauss(0.5, 0.03) for _ in range(60)],
        "a<&": [draw.gauss(0.9, 0.03) for _ in range(60)],
    }
    profile = Profile.of("pebble", 1, values)
    html = make_page(read_folder(folder), profile=profile)
    charts = [chart for name, chart in read_charts(html).items() if name[:5] in ("fig1b", "fig9-")]
    assert [get_title(each).partition(":")[0] for each in charts] == ["all tasks", "a<&", "b"]
    for each in charts:
        assert {"tau": profile.tau} in list_records(each)
    assert sum(each.get("samples", 0) for each in list_records(charts[0])) == 120
    assert "Two groups, divided at τ" in html


def test_lost_and_won_questions_are_told(folder: Path, page: str) -> None:
    stored = read_folder(folder)
    mob = next(row for row in stored.rows if row.combination.method == MoB(64))
    found = list_changed_answers(stored, mob)
    assert [(each.task, each.example, each.change) for each in found] == [
        ("VizWiz", mob.records["VizWiz"][3].id, "lost"),
        ("POPE", mob.records["POPE"][2].id, "lost"),
    ]
    answers = read_answers(page)
    assert len(answers["questions"]) == 12
    scores = {(each["method"], each["budget"]): each["scores"] for each in answers["methods"]}
    assert scores["unpruned", ""] == [*WHOLE["VizWiz"], *WHOLE["GQA"], *WHOLE["POPE"]]
    assert scores["fastv", "64"] == [*FASTV["VizWiz"], *FASTV["GQA"], *FASTV["POPE"]]


def test_two_runs_are_compared(folder: Path, tmp_path: Path) -> None:
    other = open_folder(tmp_path / "other")
    write(other, None, WHOLE)
    write(other, MoB(64), FASTV, tokens=64, flops=0.25)
    found = compare_runs(read_folder(folder), read_folder(other.folder))
    assert [line[:2] for line in found.lines] == [["unpruned", "-"], ["mob", "64"]]
    mob = found.lines[1]
    assert mob[2:4] == ["58.3", "41.7"]
    assert mob[4].startswith("+16.7 [")
    assert mob[5:] == ["1", "3"]  # FASTV has one answer of VizWiz that MOB lacks
    one, two = open_folder(tmp_path / "one"), open_folder(tmp_path / "two")
    write(one, None, {"GQA": [1, 0]})
    write(two, None, {"POPE": [1, 0]})
    with pytest.raises(InputError, match="no task in common"):
        compare_runs(read_folder(one.folder), read_folder(two.folder))


def test_charts_are_written_as_files(folder: Path, tmp_path: Path) -> None:
    charts = make_figures(read_folder(folder))
    few = {name: charts[name] for name in ("fig3-flops", "fig1c-64")}
    written = write_figures(few, tmp_path / "figures", ["pdf", "svg", "png"])
    assert [path.name for path in written[:3]] == [f"fig3-flops.{kind}" for kind in FORMATS]
    starts = {".pdf": b"%PDF", ".svg": b"<svg", ".png": b"\x89PNG"}
    for path in written:
        assert path.read_bytes().startswith(starts[path.suffix])
    assert "minus unpruned" in (tmp_path / "figures" / "fig3-flops.svg").read_text()
    with pytest.raises(InputError, match="gif"):
        write_figures(few, tmp_path / "none", ["gif"])
    assert not (tmp_path / "none").exists()


def test_the_same_results_give_the_same_bytes(folder: Path, page: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in sorted(folder.iterdir(), reverse=True):
        (other / path.name).write_bytes(path.read_bytes())
    assert page == make_page(read_folder(other))
    assert make_markdown(read_folder(folder)) == make_markdown(read_folder(other))


def test_what_is_not_finished_failed_or_cannot_run_is_said(folder: Path) -> None:
    results = ResultsFolder(folder, run_of("pebble"))
    write(results, DART(64), {"GQA": [1, 1, 1, 1]}, tokens=64)
    write(results, DART(128), {**WHOLE, "GQA": [1, None, 1, 1]}, tokens=128)
    refused = Scores(cannot="no room\nfor <it>")
    results.write(Scoring(Combination(FastV(128)), task("GQA")), refused)
    stored = read_folder(folder)
    text, html = make_markdown(stored), make_page(stored)
    assert "not finished: 1 of 3 tasks" in text
    assert "not finished: 1 of 3 tasks" in html
    assert "cannot: no room for \\<it\\>" in text
    assert "cannot: no room for &lt;it&gt;" in html
    assert "dart 128: 1 of 12 examples failed, not scored." in text


def test_without_the_unpruned_model_there_is_no_average(tmp_path: Path) -> None:
    results = open_folder(tmp_path)
    write(results, MoB(64), MOB, tokens=64)
    stored = read_folder(tmp_path)
    assert stored.compare().lines[0].cells[2].text == "-"
    html = make_page(stored)
    assert "Avg. is not defined: the unpruned model has not answered" in html
    assert not read_charts(html)


def test_a_task_that_the_unpruned_model_fails_is_named(tmp_path: Path) -> None:
    results = open_folder(tmp_path)
    write(results, None, {**WHOLE, "GQA": [0, 0, 0, 0]})
    write(results, MoB(64), MOB, tokens=64)
    text = make_markdown(read_folder(tmp_path))
    assert "Avg. is not defined: the unpruned model has no score in GQA." in text
    assert "| mob | 64 | 25.0 | 75.0 | - |" in text


def test_words_of_others_do_no_harm(tmp_path: Path) -> None:
    nasty = "<b>|`*x*`"
    results = open_folder(tmp_path, nasty)
    write(results, None, WHOLE)
    html, text = make_page(read_folder(tmp_path)), make_markdown(read_folder(tmp_path))
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.S)
    assert "<b>" not in own
    assert "&lt;b&gt;" in own
    assert "\\<b\\>\\|\\`\\*x\\*\\`" in text
    assert (
        escape_markdown("common_color _x_ [a](b) [1, 2]") == "common_color \\_x\\_ [a]\\(b) [1, 2]"
    )


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("llava-hf/llava-1.5-7b-hf", "LLaVA-1.5-7B"),
        ("/models/llava_v1.5_7b/", "LLaVA-1.5-7B"),
        ("llava-hf/llava-v1.6-vicuna-7b-hf", "LLaVA-Next-7B"),
        ("Qwen/Qwen2-VL-7B-Instruct", "Qwen2-VL-7B"),
        ("LanguageBind/Video-LLaVA-7B-hf", "Video-LLaVA-7B"),
        ("llava-hf/llava-1.5-13b-hf", None),
        ("llava-hf/llava-v1.6-mistral-7b-hf", None),
        ("Qwen/Qwen2.5-VL-7B-Instruct", None),
        ("pebble", None),
    ],
)
def test_the_papers_models_are_known_by_name(name: str, model: str | None) -> None:
    assert get_paper_model(name) == model


def test_the_papers_numbers_stand_beside_ours(tmp_path: Path) -> None:
    folder = filled(open_folder(tmp_path, "llava-hf/llava-1.5-7b-hf"))
    write(
        ResultsFolder(folder, run_of("llava-hf/llava-1.5-7b-hf")),
        MoB(64, split="weak"),
        MOB,
        tokens=64,
    )
    stored = read_folder(folder)
    found = {(each.paper.reduction, each.paper.method): each for each in compare_with_paper(stored)}
    assert {reduction for reduction, _ in found} == {0.0, 77.8, 88.9}
    mob = found[88.9, "mob"]
    assert mob.ours is not None
    assert mob.ours.combination == Combination(MoB(64))
    assert (mob.paper.printed_average, mob.average) == (96.3, "75.0")
    assert mob.scores["GQA"] == ("59", "75.0")
    assert found[88.9, "dart"].ours is None
    assert found[88.9, "dart"].scores["POPE"] == ("73.9", "-")
    prior = found[88.9, "mob+prior"].ours
    assert prior is not None
    assert prior.combination == Combination(MoB(64, split="weak"))
    html, text = make_page(stored), make_markdown(stored)
    assert "The paper's numbers for LLaVA-1.5-7B" in html
    assert "not by this run" in html
    pair = '<td class="paper" data-label="Avg. % (paper)">96.3</td><td data-label="Avg. % (here)">'
    assert f"{pair}75.0</td>" in html
    assert "| MoB, here mob 64 | 88.9 | 96.3 | 75.0 |" in text
    assert "compare trends" not in text  # all tasks are the paper's


def test_the_paper_says_nothing_about_other_models(folder: Path, page: str) -> None:
    assert not compare_with_paper(read_folder(folder))
    assert "The paper's numbers" not in page


def test_the_command_writes_what_was_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = tmp_path / "new" / "r.html", tmp_path / "r.md"
    profile = tmp_path / "profile.json"
    Profile.of("pebble", 1, {"a": [0.1, 0.2]}).save(profile)
    table, rows, figures = tmp_path / "t.tex", tmp_path / "r.csv", tmp_path / "figures"
    command(
        *(folder, "--out", out, "--markdown", text, "--profile", profile, "--reference", "fastv"),
        *("--latex", table, "--csv", rows, "--figures", figures, "--format", "svg"),
    )
    assert "tabular" in table.read_text()
    assert rows.read_text().startswith("method,budget,")
    assert {"fig3-flops.svg", "fig1b.svg"} <= {path.name for path in figures.iterdir()}
    html = out.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "Coupling of prompt and image" in html
    assert "minus fastv [95 %]" in html
    assert "minus fastv [95 %]" in text.read_text(encoding="utf-8")
    assert text.read_text(encoding="utf-8").startswith("# Pruning visual tokens of pebble")
    assert f"wrote {out}" in capsys.readouterr().out


def test_a_wrong_profile_writes_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    with pytest.raises(InputError, match="calibrate"):
        command(folder, "--out", out, "--profile", folder / "run.json")
    assert not out.exists()
    with pytest.raises(SystemExit) as end:
        command(folder, "--out", folder / "run.json" / "r.html")
    assert end.value.code == 2


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"it has no run\.json"):
        read_folder(tmp_path)
    open_folder(tmp_path)
    with pytest.raises(InputError, match="no finished results yet"):
        read_folder(tmp_path)


def one_file(folder: Path) -> Path:
    return next(iter(sorted(folder.glob("scores-mob-64-GQA*.json"))))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ({"run": {"model": {"name": "other"}}}, "not a result of this run"),
        ({"kind": "poem"}, "'poem' is not a kind of result"),
        ({"version": "2"}, "its GQA has other examples"),
        ({"method": {"method": "nothing"}}, "there is no method 'nothing'"),
        ({"examples": [{"id": "0", "cluster": "a"}]}, "neither scored nor failed"),
        ({"examples": [{"color": "red"}]}, "TypeError"),
        ({"examples": 3}, "TypeError"),
    ],
)
def test_a_strange_file_is_named(folder: Path, damage: dict[str, object], why: str) -> None:
    path = one_file(folder)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(ResultsError, match=why) as caught:
        read_folder(folder)
    assert "is damaged or does not belong to this run" in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "\x00"])
def test_a_damaged_or_foreign_file_is_named(folder: Path, text: str) -> None:
    one_file(folder).write_text(text)
    with pytest.raises(ResultsError, match="damaged or does not belong to this run"):
        read_folder(folder)


def test_bytes_that_are_no_text_are_damage_too(folder: Path) -> None:
    one_file(folder).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ResultsError, match="damaged"):
        read_folder(folder)


def test_another_format_is_refused(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "format": 99}))
    with pytest.raises(ResultsError, match="of format 99"):
        read_folder(folder)
    (folder / "run.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(ResultsError, match="it does not name the model"):
        read_folder(folder)


def test_files_that_are_no_json_do_not_matter(folder: Path, page: str) -> None:
    (folder / "report.html").write_text("x")
    (folder / "scores-half.json.tmp").write_text("{")
    assert make_page(read_folder(folder)) == page


def test_the_papers_other_scales_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GROUPS, "mme", "weak")
    monkeypatch.setitem(GROUPS, "mine", "weak")
    results = open_folder(tmp_path, "llava-1.5-7b")
    write(results, None, {"mme": [1, 1], "mine": [1, 0]})
    text = make_markdown(read_folder(tmp_path))
    assert "MME: the paper prints sums of points, here they are percent." in text
    assert "of which 1 is named like a benchmark of the paper: compare trends, not digits." in text
    assert "| unpruned | 0 | 100 | 100.0 | 1862 | 100.0 |" in text
