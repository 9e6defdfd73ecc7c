"""Charts as files for papers: PDF, SVG and PNG."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokencover.errors import InputError, import_extra
from tokencover.evaluation.report.charts import Specification
from tokencover.files import write_atomically

FORMATS: Final = ("pdf", "svg", "png")
WIDTH: Final = 480
"""Pixels of a chart that fills its container."""
PNG_SCALE: Final = 3.0


def check_formats(formats: Sequence[str]) -> None:
    """Raise `InputError` for formats that cannot be written."""
    for name in formats:
        if name not in FORMATS:
            raise InputError(f"figures can be written as {', '.join(FORMATS)}, not as {name!r}.")
    if not formats:
        raise InputError(f"no format is given: --format {','.join(FORMATS)}.")


def write_figures(
    charts: Mapping[str, Specification], folder: Path, formats: Sequence[str]
) -> list[Path]:
    """Write charts by name in every format, and return the files."""
    check_formats(formats)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chart in charts.items():
        for kind in formats:
            path = folder / f"{name_file(name)}.{kind}"
            write_atomically(path, render_chart(chart, kind))
            written.append(path)
    return written


def render_chart(chart: Specification, kind: str) -> bytes | str:
    """Return a chart as the content of a file."""
    converter: Any = import_extra(
        "vl_convert", "writing charts", "tokencover[figures]", "use the page, which has them"
    )
    fixed = _set_width(chart)
    if kind == "svg":
        text: str = converter.vegalite_to_svg(fixed)
        return text
    drawn: bytes = (
        converter.vegalite_to_pdf(fixed)
        if kind == "pdf"
        else converter.vegalite_to_png(fixed, scale=PNG_SCALE)
    )
    return drawn


def name_file(name: str) -> str:
    """Return a name for any file system."""
    return re.sub(r"[^A-Za-z0-9.+]+", "-", name).strip("-") or "figure"


def _set_width(chart: Specification) -> Specification:
    fixed = copy.deepcopy(chart)
    if fixed.get("width") == "container":
        fixed["width"] = WIDTH
    fixed.setdefault("config", {})["background"] = "white"
    return fixed
