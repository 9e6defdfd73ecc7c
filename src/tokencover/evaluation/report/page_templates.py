"""Pages from templates: values are escaped, and nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from tokencover.errors import import_extra
from tokencover.evaluation.columns import TableLine


def check_page_parts() -> None:
    """Raise `MissingPackageError` before the work if a package for pages is missing."""
    for part in ("jinja2", "altair", "vl_convert"):
        import_extra(part, "writing pages", "tokencover[figures]", "leave the page out")


def render_page(template: str, **values: Any) -> str:
    """Fill a template of the folder ``templates``; `charts` adds the library that draws them."""
    if values.get("charts"):
        values["charts_library"] = _bundle_library()
    text: str = _open_templates().get_template(template).render(**values)
    return text


@cache
def _open_templates() -> Any:
    jinja2 = import_extra(
        "jinja2", "writing pages", "tokencover[figures]", "write tables: --markdown, --csv"
    )
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tokencover.evaluation.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["embed_json"] = _embed_json
    environment.filters["in_order"] = _sort_lines
    return environment


def _sort_lines(lines: Sequence[TableLine], labels: Sequence[str]) -> list[TableLine]:
    """Sort lines of a table by method; unknown methods come last."""
    order = {label: index for index, label in enumerate(labels)}
    return sorted(lines, key=lambda line: order.get(line.label, len(order)))


def _embed_json(value: Any) -> Any:
    """JSON for a script element: "</script>" and comments in it are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    from markupsafe import Markup  # comes with Jinja2

    return Markup(text)


@cache
def _bundle_library() -> str:
    converter: Any = import_extra(
        "vl_convert", "drawing charts", "tokencover[figures]", "write tables: --markdown, --csv"
    )
    library: str = converter.javascript_bundle()
    return library.replace("</script", "<\\/script")
