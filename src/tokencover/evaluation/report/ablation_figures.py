"""The paper's Figures 4, 5 and 6 from the ablations that stored results hold."""

from __future__ import annotations

from typing import Any, Final

from tokencover.budget import Profile
from tokencover.evaluation.report.ablation_page import Ablation, make_ablation_charts
from tokencover.evaluation.report.curve_charts import make_boxes
from tokencover.evaluation.report.stored_ablations import StoredAblations
from tokencover.evaluation.report.vega_charts import Specification

BOX_PARTS: Final = ("least", "quarter", "median", "three_quarters", "most")


def make_ablation_figures(
    ablations: StoredAblations, profile: Profile | None
) -> dict[str, Specification]:
    """By the name of the file: ``fig4-TASK``, ``fig5-TASK``, ``fig6-TASK``, ``fig6-cost``.

    Parameters
    ----------
    ablations : StoredAblations
        What was found among the results.
    profile : Profile, optional
        For the box plots of coupling beside Figure 4; alone they are ``fig4-coupling``.
    """
    boxes = {} if profile is None else list_boxes(profile)
    charts = {
        **_number(4, ablations.prompt_budgets, boxes),
        **_number(5, ablations.folds, {}),
        **_number(6, ablations.layers, {}),
    }
    if boxes:
        charts["fig4-coupling"] = make_boxes(list(boxes.values()), "coupling by task")
    return charts


def list_boxes(profile: Profile) -> dict[str, dict[str, Any]]:
    """For each task what a box plot of its coupling shows, if the profile has it."""
    return {
        task.name: {
            "task": task.name.rsplit("/", 1)[-1],
            **dict(zip(BOX_PARTS, (round(value, 4) for value in task.quartiles), strict=True)),
        }
        for task in profile.tasks
        if task.quartiles
    }


def _number(
    figure: int, ablation: Ablation | None, boxes: dict[str, dict[str, Any]]
) -> dict[str, Specification]:
    if ablation is None:
        return {}
    charts = make_ablation_charts(ablation, boxes)
    return {f"fig{figure}-{_strip_number(name)}": chart for name, chart in charts.items()}


def _strip_number(name: str) -> str:
    number, _, rest = name.partition("-")
    return rest if number.isdigit() else name
