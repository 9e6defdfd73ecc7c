"""Reports: a folder of results, or an ablation, as a page, tables, text and charts.

================ ===============================================================================
page             the HTML page, and all charts for papers
page_templates   pages from the templates in ``templates/``
text             the verdict, the other sentences of reports, and the report as Markdown
latex            tables in the paper's layout
report_charts    charts of results: accuracy against cost, tasks, coupling
charts           how charts are drawn: looks, legends, radar charts, curves; charts as files
ablations        ablations as tables, charts and a page
changes          questions lost and won, and the comparison with another run
kept_images      kept tokens drawn on images
paper_comparison the paper's numbers beside those of a run
================ ===============================================================================
"""

from tokencover.evaluation.report.ablations import (
    ABLATION_TITLES,
    Ablation,
    StoredAblations,
    collect_ablations,
    export_ablation,
    make_ablation_charts,
    make_ablation_markdown,
    make_ablation_page,
    tabulate_ablation,
)
from tokencover.evaluation.report.charts import check_formats, render_chart, write_figures
from tokencover.evaluation.report.kept_images import (
    KeptExample,
    KeptSide,
    draw_kept_images,
    explain_missing,
    list_changed_answers,
    select_rows,
)
from tokencover.evaluation.report.latex import make_latex
from tokencover.evaluation.report.page import make_figures, make_page
from tokencover.evaluation.report.page_templates import check_page_parts
from tokencover.evaluation.report.text import make_markdown

__all__ = [
    "ABLATION_TITLES",
    "Ablation",
    "KeptExample",
    "KeptSide",
    "StoredAblations",
    "check_formats",
    "check_page_parts",
    "collect_ablations",
    "draw_kept_images",
    "explain_missing",
    "export_ablation",
    "list_changed_answers",
    "make_ablation_charts",
    "make_ablation_markdown",
    "make_ablation_page",
    "make_figures",
    "make_latex",
    "make_markdown",
    "make_page",
    "render_chart",
    "select_rows",
    "tabulate_ablation",
    "write_figures",
]
