"""A folder of results, or an ablation, as a page: what is compared, drawn and written."""

from tokencover.evaluation.report.ablation_page import (
    Ablation,
    draw_curves,
    export_ablation,
    make_ablation_markdown,
    make_ablation_page,
)
from tokencover.evaluation.report.kept_pictures import choose_method, draw_kept_pictures
from tokencover.evaluation.report.markdown import make_markdown
from tokencover.evaluation.report.page import make_page

__all__ = [
    "Ablation",
    "choose_method",
    "draw_curves",
    "draw_kept_pictures",
    "export_ablation",
    "make_ablation_markdown",
    "make_ablation_page",
    "make_markdown",
    "make_page",
]
