"""Looks at charts: what is drawn, and where."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    """The picture; fails if it is not well-formed."""
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    first = root[0]
    assert first.tag == f"{SVG}title"
    assert first.text
    return root


def pictures(page: str) -> list[ET.Element]:
    """All pictures of a page."""
    return [parsed(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def all_of(root: ET.Element, name: str) -> list[ET.Element]:
    return list(root.iter(f"{SVG}{name}"))


def corners(element: ET.Element) -> list[tuple[float, float]]:
    """The points of a polyline or polygon."""
    pairs = (pair.split(",") for pair in (element.get("points") or "").split())
    return [(float(x), float(y)) for x, y in pairs]


def number(element: ET.Element, key: str) -> float:
    return float(element.get(key) or "nan")


def words(root: ET.Element) -> list[str]:
    """All texts that are shown."""
    return [each.text or "" for each in all_of(root, "text")]


def assert_inside(root: ET.Element) -> None:
    """Everything that has a place lies within the picture."""
    width, height = map(float, (root.get("viewBox") or "").split()[2:])
    places = [(number(each, "cx"), number(each, "cy")) for each in all_of(root, "circle")]
    places += [(number(each, "x"), number(each, "y")) for each in all_of(root, "text")]
    for each in all_of(root, "line"):
        places += [(number(each, f"x{end}"), number(each, f"y{end}")) for end in (1, 2)]
    for each in all_of(root, "rect"):
        x, y = number(each, "x"), number(each, "y")
        places += [(x, y), (x + number(each, "width"), y + number(each, "height"))]
    for kind in ("polyline", "polygon"):
        places += [corner for each in all_of(root, kind) for corner in corners(each)]
    assert places
    for x, y in places:
        assert 0 <= x <= width, (x, width)
        assert 0 <= y <= height, (y, height)
