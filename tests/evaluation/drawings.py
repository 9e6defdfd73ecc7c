"""Looks into pages: which charts they bring, and what these say."""

from __future__ import annotations

import json
import re
from typing import Any


def read_charts(page: str) -> dict[str, dict[str, Any]]:
    """The specifications of all charts of a page, by name."""
    found = re.findall(r'<script type="application/json" id="charts">(.*?)</script>', page, re.S)
    return json.loads(found[0]) if found else {}


def read_answers(page: str) -> dict[str, Any]:
    """What every method answered."""
    (found,) = re.findall(
        r'<script type="application/json" id="answers">(.*?)</script>', page, re.S
    )
    answers: dict[str, Any] = json.loads(found)
    return answers


def list_records(chart: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that a chart draws."""
    named = chart.get("datasets", {})
    found = []
    for layer in chart["layer"]:
        data = layer.get("data", chart.get("data", {}))
        values = data.get("values", named.get(data.get("name"), []))
        if values not in found:
            found.append(values)
    return [record for values in found for record in values]


def get_title(chart: dict[str, Any]) -> str:
    return str(chart["title"])


def get_colors(chart: dict[str, Any]) -> dict[str, str]:
    """The colour of each method or curve."""
    for layer in chart["layer"]:
        scale = layer["encoding"].get("color", {}).get("scale")
        if scale:
            return dict(zip(scale["domain"], scale["range"], strict=True))
    return {}
