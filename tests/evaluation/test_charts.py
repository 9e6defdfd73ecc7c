import math
from itertools import pairwise

import pytest

from tests.evaluation.drawings import all_of, assert_inside, corners, number, parsed, words
from tokencover.errors import InputError
from tokencover.evaluation.report.charts import (
    Labels,
    Point,
    Series,
    draw_histogram,
    draw_lines,
    draw_scatter,
)
from tokencover.evaluation.report.radar import MIDDLE, RADAR_RADIUS, Polygon, draw_radar
from tokencover.evaluation.report.svg import (
    Scale,
    choose_stroke,
    list_round_values,
    make_scale,
    write_pixels,
)

LABELS = Labels("accuracy", "tokens", "percent", "unpruned")
CURVES = [
    Series("a", (Point(0, 50, 45, 55), Point(8, 60, 52, 66), Point(64, 58))),
    Series("b", (Point(16, 91.5),)),
]


def test_scales_are_linear() -> None:
    scale = Scale(-10, 30, 100, 20)
    assert [scale(value) for value in (-10, 10, 30)] == [100, 60, 20]
    assert scale.ticks == [-10, 0, 10, 20, 30]


@pytest.mark.parametrize("values", [[3.0], [0.0], [-2.0, -2.0], [1e-9, 2e-9], [5.0, 1e6]])
def test_scales_hold_all_values(values: list[float]) -> None:
    scale = make_scale(values, 0, 100)
    assert all(0 < scale(value) < 100 for value in values)
    assert 2 <= len(scale.ticks) <= 12
    assert all(0 <= scale(value) <= 100 for value in scale.ticks)


def test_ticks_are_round() -> None:
    assert list_round_values(0.0, 1.0) == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert list_round_values(44.1, 103.0) == [60, 80, 100]
    assert list_round_values(-0.3, 0.3, 3) == [-0.2, 0.0, 0.2]


def test_coordinates_are_short_and_never_minus_zero() -> None:
    assert [write_pixels(value) for value in (1.0, 2.345, -0.0001, 10.0)] == [
        "1",
        "2.35",
        "0",
        "10",
    ]


def test_a_line_chart_draws_every_point_where_it_belongs() -> None:
    root = parsed(draw_lines(CURVES, LABELS, line=100.0))
    assert_inside(root)
    dots = all_of(root, "circle")
    assert len(dots) == 4
    across = [number(dot, "cx") for dot in dots[:3]]
    assert all(left < right for left, right in pairwise(across))
    # Linear: from 0 to 8 is an eighth of from 0 to 64.
    assert across[1] - across[0] == pytest.approx((across[2] - across[0]) / 8, abs=0.02)
    heights = [number(dot, "cy") for dot in dots]
    assert heights[3] < heights[1] < heights[2] < heights[0]
    drawn = all_of(root, "polyline")[0]
    assert corners(drawn) == list(zip(across, heights[:3], strict=True))


def test_whiskers_reach_from_end_to_end() -> None:
    root = parsed(draw_lines(CURVES, LABELS))
    whiskers = [each for each in all_of(root, "line") if each.get("stroke-opacity") == "0.5"]
    assert len(whiskers) == 2
    dot = all_of(root, "circle")[0]
    ends = [number(whiskers[0], "y1"), number(whiskers[0], "y2")]
    assert ends[0] - number(dot, "cy") == pytest.approx(number(dot, "cy") - ends[1], abs=0.02)
    with pytest.raises(InputError, match="both or none"):
        draw_lines([Series("a", (Point(0, 1, low=0),))], LABELS)


def test_all_series_are_named_and_no_legend_leaves_the_picture() -> None:
    many = [Series(f"method number {place}", (Point(place, place),)) for place in range(14)]
    root = parsed(draw_lines(many, LABELS))
    assert_inside(root)
    assert {each.name for each in many} <= set(words(root))


def test_names_in_a_scatter_do_not_cover_each_other() -> None:
    near = [Series(f"m{place}", (Point(1 + place / 1e3, 1),)) for place in range(8)]
    root = parsed(draw_scatter([*near, Series("far", (Point(2, 1),))], LABELS))
    assert_inside(root)
    shown = [each for each in all_of(root, "text") if (each.text or "").startswith("m")]
    boxes = []
    for text in shown:
        width = 6.2 * len(text.text or "")
        x = number(text, "x") - (width if text.get("text-anchor") == "end" else 0)
        boxes.append((x, number(text, "y"), width))
    assert len(boxes) == 8
    for place, (x, y, width) in enumerate(boxes):
        for other_x, other_y, other_width in boxes[:place]:
            apart = x >= other_x + other_width or other_x >= x + width
            assert apart or abs(y - other_y) >= 12 - 1e-6


def test_words_are_escaped() -> None:
    nasty = "<script>\"&'</script>"
    labels = Labels(nasty, nasty, nasty, nasty)
    charts = [
        draw_lines([Series(nasty, (Point(0, 1, name=nasty),))], labels, line=1.0),
        draw_scatter([Series(nasty, (Point(0, 1),))], labels),
        draw_histogram([0, 1], [3], labels, mark=0.5),
        draw_radar([nasty] * 3, [Polygon(nasty, (1, 2, 3), 0)], nasty, nasty),
    ]
    for chart in charts:
        assert "<script" not in chart
        assert nasty in words(parsed(chart))


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(InputError, match="nothing to draw in 'accuracy'"):
        draw_lines([], LABELS)
    with pytest.raises(InputError, match="nothing to draw"):
        draw_scatter([*CURVES, Series("c", ())], LABELS)


def test_bars_are_as_high_as_their_counts() -> None:
    root = parsed(draw_histogram([0.0, 0.5, 1.0, 1.5, 2.0], [1, 0, 4, 2], LABELS, mark=0.75))
    assert_inside(root)
    bars = all_of(root, "rect")
    assert len(bars) == 3  # an empty bin has none
    heights = [number(bar, "height") for bar in bars]
    assert heights == [pytest.approx(heights[1] * share, abs=0.02) for share in (0.25, 1, 0.5)]
    bottoms = {round(number(bar, "y") + number(bar, "height"), 1) for bar in bars}
    assert len(bottoms) == 1
    mark = next(each for each in all_of(root, "line") if each.get("stroke-dasharray"))
    first, third = number(bars[0], "x"), number(bars[1], "x")
    assert number(mark, "x1") == pytest.approx(first + 0.75 * (third - first), abs=0.02)


def test_a_histogram_needs_fitting_edges_and_leaves_out_a_mark_beyond_them() -> None:
    with pytest.raises(InputError, match="2 bins need 3 edges, got 2"):
        draw_histogram([0, 1], [1, 2], LABELS)
    root = parsed(draw_histogram([0, 1], [0], LABELS, mark=2.0))
    assert not all_of(root, "rect")
    assert not [each for each in all_of(root, "line") if each.get("stroke-dasharray")]


def test_radar_corners_lie_on_their_axes_as_far_out_as_their_values() -> None:
    values = (100.0, 90.0, 80.0, 60.0)
    root = parsed(draw_radar(list("abcd"), [Polygon("mob", values, 0)], "64", "percent"))
    assert_inside(root)
    drawn = next(each for each in all_of(root, "polygon") if each.get("fill") != "none")
    offsets = [(x - MIDDLE[0], y - MIDDLE[1]) for x, y in corners(drawn)]
    lengths = [math.hypot(x, y) for x, y in offsets]
    low = 60 - 0.25 * 40
    assert lengths == [
        pytest.approx(RADAR_RADIUS * (value - low) / (100 - low), abs=0.02) for value in values
    ]
    for (x, y), way in zip(offsets, [(0, -1), (1, 0), (0, 1), (-1, 0)], strict=True):
        assert x * way[1] - y * way[0] == pytest.approx(0, abs=0.02)
        assert x * way[0] + y * way[1] > 0


def test_radar_draws_the_first_on_top_and_cuts_long_names() -> None:
    long = "a task with a very long name"
    polygons = [Polygon("mob", (90, 90, 90), 0), Polygon("fastv", (110, 70, 80), 3)]
    root = parsed(draw_radar([long, "b", "c"], polygons, "64", "percent"))
    assert_inside(root)
    drawn = [each for each in all_of(root, "polygon") if each.get("fill") != "none"]
    assert [each.get("stroke") for each in drawn] == [
        choose_stroke(3)["stroke"],
        choose_stroke(0)["stroke"],
    ]
    assert long not in words(root)
    assert "a task with a v…" in words(root)
    with pytest.raises(InputError, match="at least 3 axes, got 2"):
        draw_radar(["a", "b"], [], "64", "percent")
    with pytest.raises(InputError, match="mob does not have a value for each of the 3 axes"):
        draw_radar(["a", "b", "c"], [Polygon("mob", (1, 2), 0)], "64", "percent")


def test_many_lines_look_different() -> None:
    looks = [tuple(choose_stroke(place).values()) for place in range(24)]
    assert len(set(looks)) == 24
    assert choose_stroke(0)["stroke"] not in {
        choose_stroke(place)["stroke"] for place in range(1, 24)
    }
