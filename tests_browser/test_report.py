"""The report's page in a browser: sorted, filtered, dark, on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.evaluation.made_results import open_folder, write
from tests_browser.conftest import LIMIT, PHONE
from tokencover.evaluation import read_folder
from tokencover.evaluation.report import KeptExample, KeptSide, make_page
from tokencover.methods import DART, FastV, MoB, Random

LIST_OVERLAPS = """(chart) => {
  const texts = [...chart.querySelectorAll("svg.marks text")].filter((text) =>
    text.textContent.trim() && getComputedStyle(text).opacity !== "0");
  const boxes = texts.map((text) => text.getBoundingClientRect());
  const found = [];
  boxes.forEach((a, one) => boxes.slice(one + 1).forEach((b, other) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 3)  // a line box is higher than its letters
      found.push([texts[one].textContent, texts[one + 1 + other].textContent]);
  }));
  return found;
}"""
"""Pairs of texts in a chart of which one covers the other."""
ROW = "tr.pictures"
TASKS = ("GQA", "POPE", "VizWiz")


def make_scores(*right: int) -> dict[str, list[float | None]]:
    """So many correct answers of eight in each task."""
    return {
        task: [float(place < count) for place in range(8)]
        for task, count in zip(TASKS, right, strict=True)
    }


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    results = open_folder(folder / "results")
    write(results, None, make_scores(8, 8, 7))
    for budget, lost in ((128, 1), (64, 2), (32, 4)):
        write(results, MoB(budget), make_scores(8 - lost, 8, 7), tokens=budget, flops=budget / 500)
        write(
            results, FastV(budget), make_scores(7 - lost, 7, 7), tokens=budget, flops=budget / 400
        )
        write(results, DART(budget), make_scores(7, 7 - lost, 7), tokens=budget, flops=budget / 400)
        write(results, Random(budget), make_scores(2, 3, 1), tokens=budget, flops=budget / 450)
    path = folder / "report.html"
    path.write_text(make_page(read_folder(results.folder)), encoding="utf-8")
    return path.as_uri()


def open_report(page: Page, report: str) -> None:
    page.goto(report)
    page.wait_for_selector("body[data-drawn=yes]")


def list_labels(page: Page) -> list[str]:
    """The methods of the first table at budget 128, from top to bottom."""
    body = page.locator("table").first.locator("tbody").nth(1)
    return body.locator("tr:visible th[scope=row]").all_inner_texts()


def test_a_heading_sorts_the_lines_of_each_budget(page: Page, report: str) -> None:
    open_report(page, report)
    heading = page.locator("table").first.locator("thead th", has_text="Avg. %")
    heading.locator("button").click()
    falling = list_labels(page)
    assert falling[0] == "mob"
    assert falling[-1] == "random"
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").press("Enter")
    rising = list_labels(page)
    assert (rising[0], rising[-1]) == ("random", "mob")


def test_methods_and_budgets_are_chosen(page: Page, report: str) -> None:
    open_report(page, report)
    chart = page.locator('[data-chart="fig3-flops"]')
    points = chart.locator("[aria-roledescription=point]")
    count = points.count()
    page.locator('input[data-pick=method][value="fastv"]').uncheck()
    expect(points).to_have_count(count - 3)
    page.locator('input[data-pick=budget][value="32"]').uncheck()
    expect(points).to_have_count(count - 3 - 3)
    page.locator("#filter-table").check()
    assert "fastv" not in list_labels(page)


def test_lost_and_won_questions(page: Page, report: str) -> None:
    open_report(page, report)
    panel = page.locator("#changes")
    expect(panel.locator("[data-count]")).to_have_text("4 lost, 0 won")  # MoB at 32
    panel.locator("[data-choice=other]").select_option(label="random, budget 32")
    expect(panel.locator("[data-count]")).to_have_text("0 lost, 13 won")
    panel.locator("[data-choice=task]").select_option("POPE")
    expect(panel.locator("tbody tr")).to_have_count(5)


def test_charts_have_tooltips(page: Page, report: str) -> None:
    open_report(page, report)
    point = page.locator('[data-chart="fig3-flops"] [aria-roledescription=point]').first
    point.scroll_into_view_if_needed()
    point.hover()
    expect(page.locator("#vg-tooltip-element")).to_contain_text("budget")


@pytest.mark.parametrize("width", [1280, 375])
def test_labels_of_charts_do_not_overlap(page: Page, report: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    open_report(page, report)
    page.locator("button[data-all=yes]").dispatch_event("click")
    for chart in page.locator("[data-chart]").all():
        if chart.is_visible():
            assert chart.evaluate(LIST_OVERLAPS) == [], chart.get_attribute("data-chart")


def test_dark_is_dark(browser: Browser, report: str) -> None:
    page = browser.new_page(color_scheme="dark")
    page.set_default_timeout(LIMIT)
    open_report(page, report)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(13, 17, 23)"
    name = page.locator('[data-chart="fig1c-64"] svg.marks text', has_text="GQA").first
    assert name.get_attribute("fill") == "#e6edf3"
    page.close()


def test_a_phone_needs_no_sideways_scrolling(page: Page, report: str) -> None:
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    open_report(page, report)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    boxes = page.locator(".wide")
    for box in boxes.all():  # nor within a table
        assert box.evaluate("(each) => each.scrollWidth <= each.clientWidth")
    chart = page.locator('[data-chart="fig3-flops"] svg.marks').bounding_box()
    assert chart is not None
    assert 250 < chart["width"] <= PHONE["width"]


BAD = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


def draw_side(method: str, budget: str) -> KeptSide:
    tokens = "".join(
        f'<rect x="{5 * place}" width="4" height="4" pointer-events="all">'
        f"<title>{method}: row 1, column {place + 1}</title></rect>"
        for place in range(2)
    )
    figure = f'<figure><svg viewBox="0 0 10 10" width="100">{tokens}</svg></figure>'
    return KeptSide(method, budget, BAD, figure)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with the images of the one question that MoB loses."""
    folder = tmp_path_factory.mktemp("pictures")
    results = open_folder(folder / "results", model=BAD)
    write(results, None, make_scores(8, 8, 7))
    write(results, MoB(64), make_scores(7, 8, 7), tokens=64, flops=0.2)
    write(results, FastV(64), make_scores(6, 8, 7), tokens=64, flops=0.3)
    sides = (draw_side("unpruned", ""), draw_side("mob", "64"), draw_side("fastv", "64"))
    example = KeptExample("GQA", "7", BAD, BAD, "lost", sides)
    path = folder / "report.html"
    page = make_page(read_folder(results.folder), kept=[example], command=BAD)
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


def test_a_token_tells_what_it_is_without_a_pointer(page: Page, pictures: str) -> None:
    open_report(page, pictures)
    told = page.locator("article.kept .told:visible").first
    page.locator("article.kept rect:visible").first.click()
    expect(told).to_have_text("mob: row 1, column 1")
    page.keyboard.press("ArrowRight")
    expect(told).to_have_text("mob: row 1, column 2")


def test_lost_questions_show_both_pictures(page: Page, pictures: str) -> None:
    open_report(page, pictures)
    panel = page.locator("#changes")
    expect(panel.locator("[data-count]")).to_have_text("1 lost, 0 won")
    panel.get_by_role("button").click()
    shown = panel.locator(f"{ROW} [data-method]")
    assert [each.get_attribute("data-method") for each in shown.all()] == ["mob", "unpruned"]
    panel.locator("[data-choice=other]").select_option(label="fastv, budget 64")
    expect(panel.locator("[data-count]")).to_have_text("0 lost, 1 won")
    panel.locator("[data-choice=drawn]").check()
    expect(panel.locator("tbody tr")).to_have_count(0)  # another question: it was not drawn


def test_words_of_others_do_no_harm(page: Page, pictures: str) -> None:
    alerts: list[str] = []
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    open_report(page, pictures)
    page.locator("#changes").get_by_role("button").click()
    assert alerts == []
    assert page.locator("img[src=x]").count() == 0
    assert BAD in page.locator("article.kept h3").inner_text()


def test_screen_readers_are_told_what_things_are(page: Page, report: str) -> None:
    open_report(page, report)
    tables = page.locator("table")
    assert page.locator("table > caption").count() == tables.count()
    assert all(text.strip() for text in page.locator("thead th").all_text_contents())
    names = page.evaluate(
        "[...document.querySelectorAll('input, select')].map((each) => each.labels.length)"
    )
    assert min(names) == 1
    charts = page.locator("[data-chart]")
    assert all("Accuracy" in str(each.get_attribute("aria-label")) for each in charts.all()[:2])
