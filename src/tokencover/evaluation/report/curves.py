"""Curves of ablations (Figures 4 to 6), and distributions of coupling (1b, 4, 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tokencover.evaluation.report.charts import (
    UNPRUNED_COLOR,
    Specification,
    finish_chart,
    import_altair,
)

HISTOGRAM_WIDTH: Final = 300
BLUE: Final = "#0078ff"
RED: Final = "#c8102e"
BOX_WIDTH: Final = 26
"""Pixels per box."""


def make_histogram(
    edges: Sequence[float], counts: Sequence[int], title: str, threshold: float | None
) -> Specification:
    """Draw the distribution of coupling, with the threshold between strong and weak."""
    alt = import_altair()
    bars = [
        {"from": start, "to": stop, "samples": count}
        for start, stop, count in zip(edges, edges[1:], counts, strict=False)
    ]
    layers = [
        alt.Chart(alt.Data(values=bars))
        .mark_bar(color=BLUE)
        .encode(
            x=alt.X("from:Q", bin="binned", title="coupling η", scale=alt.Scale(zero=False)),
            x2="to:Q",
            y=alt.Y("samples:Q", title="samples"),
            tooltip=[
                alt.Tooltip("from:Q", format=".3f"),
                alt.Tooltip("to:Q", format=".3f"),
                "samples:Q",
            ],
        )
    ]
    if threshold is not None:
        line = alt.Chart(alt.Data(values=[{"tau": threshold}])).encode(x="tau:Q")
        layers.append(line.mark_rule(color=RED, strokeDash=[5, 3]))
        for text, look in (("← strong", {"align": "right", "dx": -5}), ("weak →", {"dx": 5})):
            layers.append(
                line.mark_text(
                    text=text, color=RED, fontSize=10, **{"align": "left", **look}
                ).encode(y=alt.value(8))
            )
    return finish_chart(alt.layer(*layers).properties(width=HISTOGRAM_WIDTH, height=180), title)


def make_curves(
    points: Sequence[Mapping[str, Any]],
    title: str,
    axis: str,
    unpruned: float | None,
    *,
    ordered: bool = True,
    boxes: Sequence[Mapping[str, Any]] = (),
) -> Specification:
    """Draw curves with intervals, for ablations.

    `points` have ``curve``, ``x``, ``y``, ``name`` and optionally ``low``, ``high`` and ``best``,
    which is larger. `unpruned` is drawn as a line. Points are connected from left to right if
    `ordered`. `boxes` are drawn to the right, see `make_boxes`.
    """
    alt = import_altair()
    records = [{**point, "order": order} for order, point in enumerate(points)]
    base = alt.Chart(alt.Data(values=records)).encode(
        x=alt.X("x:Q", title=axis, scale=alt.Scale(zero=False)),
        color=alt.Color(
            "curve:N",
            title=None,
            sort=None,
            legend=alt.Legend(orient="bottom", columns=1, labelLimit=340, symbolOpacity=1),
        ),
    )
    y = alt.Y("y:Q", title="accuracy %", scale=alt.Scale(zero=False))
    layers = [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(opacity=0.45)
        .encode(y=alt.Y("low:Q", title="accuracy %", scale=alt.Scale(zero=False)), y2="high:Q"),
        base.mark_line().encode(y=y, order="x:Q" if ordered else "order:Q"),
        base.mark_point(filled=True, opacity=1).encode(
            y=y,
            size=alt.condition("datum.best", alt.value(130), alt.value(45)),
            tooltip=["name:N", "curve:N", "x:Q", "y:Q", "low:Q", "high:Q"],
        ),
    ]
    if unpruned is not None:
        layers.append(
            alt.Chart(alt.Data(values=[{"y": unpruned}]))
            .mark_rule(color=UNPRUNED_COLOR, strokeDash=[5, 3])
            .encode(y="y:Q")
        )
    curves = alt.layer(*layers).properties(width=320, height=260)
    if not boxes:
        return finish_chart(curves, title)
    return finish_chart(alt.hconcat(curves, _draw_boxes(boxes)), title)


def make_boxes(boxes: Sequence[Mapping[str, Any]], title: str) -> Specification:
    """Draw one box plot of coupling per task.

    `boxes` have ``task``, ``least``, ``quarter``, ``median``, ``three_quarters`` and ``most``.
    """
    return finish_chart(_draw_boxes(boxes), title)


def _draw_boxes(boxes: Sequence[Mapping[str, Any]]) -> Any:
    alt = import_altair()
    base = alt.Chart(alt.Data(values=list(boxes))).encode(
        x=alt.X("task:N", title=None, sort=None, axis=alt.Axis(labelAngle=-60, labelLimit=110)),
        tooltip=[
            "task:N",
            *(
                alt.Tooltip(f"{name}:Q", format=".3f")
                for name in ("least", "quarter", "median", "three_quarters", "most")
            ),
        ],
    )
    scale = alt.Scale(zero=False)
    return alt.layer(
        base.mark_rule(color=BLUE).encode(
            y=alt.Y("least:Q", title="coupling η", scale=scale), y2="most:Q"
        ),
        base.mark_bar(color=BLUE, size=BOX_WIDTH // 2).encode(
            y=alt.Y("quarter:Q", scale=scale), y2="three_quarters:Q"
        ),
        base.mark_tick(color="white", thickness=2, size=BOX_WIDTH // 2).encode(y="median:Q"),
    ).properties(width=max(60, BOX_WIDTH * len(boxes)), height=260)
