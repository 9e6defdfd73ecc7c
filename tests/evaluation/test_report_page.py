import json
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.commands.calling import call
from tests.evaluation.drawings import all_of, assert_inside, pictures, words
from tests.evaluation.made_results import GROUPS, open_folder, run_of, task, write
from tokencover.budget.profile import Profile
from tokencover.errors import InputError
from tokencover.evaluation.plan import Combination, Scoring
from tokencover.evaluation.report.kept_pictures import choose_method
from tokencover.evaluation.report.markdown import make_markdown
from tokencover.evaluation.report.page import make_page
from tokencover.evaluation.report.paper_comparison import compare_with_paper, find_paper_model
from tokencover.evaluation.report.svg import choose_stroke
from tokencover.evaluation.results_folder import ResultsFolder, Scores
from tokencover.evaluation.results_table import Rank
from tokencover.evaluation.stored_results import read_folder
from tokencover.evaluation.table_formats import escape_markdown
from tokencover.methods import DART, FastV, MoB, Random
from tokencover.statistics import find_paired_difference

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
    difference = find_paired_difference(rows["fastv 64"].records, rows["mob 64"].records)
    assert difference.mean == pytest.approx(-0.5 / 3)
    assert fastv[-1] == f"-16.7 [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    assert lines["random"].cells[6].text == "-"  # it was not timed


def test_best_and_second_are_marked_and_ties_alike(folder: Path) -> None:
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
    html = make_page(read_folder(folder))
    assert '<td class="best">75.0</td>' in html
    assert '<td class="second">52.8</td>' in html


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
        assert '<tr class="reference"><th scope="row">fastv:after=3</th>' in html
        assert html.count('class="reference"') == 2  # here, and in the table of tasks
        own = choose_stroke(0)["stroke"]
        (dot,) = [each for each in all_of(pictures(html)[1], "circle") if each.get("fill") == own]
        assert str(dot[0].text).startswith("fastv:after=3, budget 64")
        assert choose_method(stored, reference) == FastV(64, after=3)
    with pytest.raises(InputError, match="no results of dart"):
        choose_method(stored, "dart")


class Balanced(HTMLParser):
    """Checks that elements are closed in order, and gathers what could reach out."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [name for name, _ in attrs if name in ("src", "href", "onclick", "onload")]
        if tag != "meta":
            self.open.append(tag)
        assert tag not in ("script", "link", "img", "iframe")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_sound_and_needs_nothing_else(folder: Path) -> None:
    html = make_page(read_folder(folder))
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert not parser.open
    assert not parser.links
    addresses = set(re.findall(r"https?://[^\"<\s]+", html))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, it is not fetched
    assert "@import" not in html
    assert "url(" not in html


def test_the_figures_are_there(folder: Path) -> None:
    found = pictures(make_page(read_folder(folder)))
    for each in found:
        assert_inside(each)
    titles = [each[0].text for each in found]
    assert titles == ["Avg. against TTFT ratio", "Avg. against FLOPs %", "budget 128", "budget 64"]
    assert len(all_of(found[0], "circle")) == 3  # random was not timed
    assert len(all_of(found[1], "circle")) == 4
    assert {"VizWiz", "GQA", "POPE", "mob", "fastv", "random"} <= set(words(found[3]))


def test_the_reference_has_its_own_color_everywhere(folder: Path) -> None:
    own = choose_stroke(0)["stroke"]
    for chart in pictures(make_page(read_folder(folder)))[:2]:
        dots = [dot for dot in all_of(chart, "circle") if dot.get("fill") == own]
        assert len(dots) == 2
        assert all(str(dot[0].text).startswith("mob, budget ") for dot in dots)
    for chart in pictures(make_page(read_folder(folder)))[2:]:
        (drawn,) = [each for each in all_of(chart, "polygon") if each.get("stroke") == own]
        assert str(drawn[0].text).startswith("mob, percent of the unpruned model: ")


def test_coupling_is_drawn_with_its_threshold(folder: Path) -> None:
    draw = random.Random(0)
    values = {
        "b": [draw.gauss(0.5, 0.03) for _ in range(60)],
        "a<&": [draw.gauss(0.9, 0.03) for _ in range(60)],
    }
    profile = Profile.of("pebble", 1, values)
    html = make_page(read_folder(folder), profile=profile)
    charts = pictures(html)[4:]
    assert [str(each[0].text).partition(":")[0] for each in charts] == ["all tasks", "a<&", "b"]
    for each in charts:
        assert_inside(each)
        assert f"τ = {profile.tau:.3f}" in words(each)
    assert "Two groups, divided at τ" in html


def test_the_same_results_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in sorted(folder.iterdir(), reverse=True):
        (other / path.name).write_bytes(path.read_bytes())
    assert make_page(read_folder(folder)) == make_page(read_folder(other))
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
    assert not pictures(html)


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
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
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
    assert find_paper_model(name) == model


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
    assert '<td class="paper">96.3</td><td>75.0</td>' in html
    assert "| MoB, here mob 64 | 88.9 | 96.3 | 75.0 |" in text
    assert "compare trends" not in text  # all tasks are the paper's


def test_the_paper_says_nothing_about_other_models(folder: Path) -> None:
    assert not compare_with_paper(read_folder(folder))
    assert "The paper's numbers" not in make_page(read_folder(folder))


def test_the_command_writes_what_was_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, text = tmp_path / "new" / "r.html", tmp_path / "r.md"
    profile = tmp_path / "profile.json"
    Profile.of("pebble", 1, {"a": [0.1, 0.2]}).save(profile)
    command(folder, "--out", out, "--markdown", text, "--profile", profile, "--reference", "fastv")
    html = out.read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "Coupling of prompt and picture" in html
    assert "minus fastv [95 %]" in html
    assert "minus fastv [95 %]" in text.read_text(encoding="utf-8")
    assert text.read_text(encoding="utf-8").startswith("# Pruning visual tokens of pebble")
    assert f"wrote {out}" in capsys.readouterr().out


def test_a_wrong_profile_writes_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    with pytest.raises(InputError, match="calibrate"):
        command(folder, "--out", out, "--profile", folder / "run.json")
    assert not out.exists()
    with pytest.raises(InputError, match="cannot be written"):
        command(folder, "--out", folder / "run.json" / "r.html")


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
        ({"kind": "poem"}, "no result is of the kind 'poem'"),
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
    with pytest.raises(InputError, match=why) as caught:
        read_folder(folder)
    assert "is damaged or does not belong here" in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "\x00"])
def test_a_damaged_or_foreign_file_is_named(folder: Path, text: str) -> None:
    one_file(folder).write_text(text)
    with pytest.raises(InputError, match="damaged or does not belong here"):
        read_folder(folder)


def test_bytes_that_are_no_text_are_damage_too(folder: Path) -> None:
    one_file(folder).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="damaged"):
        read_folder(folder)


def test_another_format_is_refused(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**run, "format": 99}))
    with pytest.raises(InputError, match="of format 99"):
        read_folder(folder)
    (folder / "run.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(InputError, match="which model"):
        read_folder(folder)


def test_files_that_are_no_json_do_not_matter(folder: Path) -> None:
    before = make_page(read_folder(folder))
    (folder / "report.html").write_text("x")
    (folder / "scores-half.json.tmp").write_text("{")
    assert make_page(read_folder(folder)) == before


def test_the_papers_other_scales_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GROUPS, "mme", "weak")
    monkeypatch.setitem(GROUPS, "mine", "weak")
    results = open_folder(tmp_path, "llava-1.5-7b")
    write(results, None, {"mme": [1, 1], "mine": [1, 0]})
    text = make_markdown(read_folder(tmp_path))
    assert "MME: the paper prints sums of points, here they are percent." in text
    assert "of which 1 is named like a benchmark of the paper: compare trends, not digits." in text
    assert "| unpruned | 0 | 100 | 100.0 | 1862 | 100.0 |" in text
