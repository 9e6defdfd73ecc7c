"""A folder of results, or an ablation, as a page: what is compared, drawn and written."""

from tokencover.evaluation.report.ablation_page import (
    ABLATION_TITLES,
    Ablation,
    export_ablation,
    make_ablation_charts,
    make_ablation_markdown,
    make_ablation_page,
)
from tokencover.evaluation.report.figure_files import (
    FORMATS,
    check_formats,
    render_chart,
    write_figures,
)
from tokencover.evaluation.report.kept_pictures import (
    KeptExample,
    KeptSide,
    choose_rows,
    draw_kept_pictures,
    explain_missing,
    list_telling_examples,
)
from tokencover.evaluation.report.latex_tables import make_latex
from tokencover.evaluation.report.markdown import make_markdown
from tokencover.evaluation.report.page import make_figures, make_page
from tokencover.evaluation.report.page_templates import check_page_parts
from tokencover.evaluation.report.stored_ablations import StoredAblations, find_ablations

__all__ = [
    "ABLATION_TITLES",
    "FORMATS",
    "Ablation",
    "KeptExample",
    "KeptSide",
    "StoredAblations",
    "check_formats",
    "check_page_parts",
    "choose_rows",
    "draw_kept_pictures",
    "explain_missing",
    "export_ablation",
    "find_ablations",
    "list_telling_examples",
    "make_ablation_charts",
    "make_ablation_markdown",
    "make_ablation_page",
    "make_figures",
    "make_latex",
    "make_markdown",
    "make_page",
    "render_chart",
    "write_figures",
]
