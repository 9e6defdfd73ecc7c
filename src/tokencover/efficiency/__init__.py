"""What pruning saves: operations, time, memory."""

from tokencover.efficiency.paper_costs import (
    PaperCost,
    compute_paper_costs,
    export_paper_costs,
    tabulate_paper_costs,
)
from tokencover.efficiency.savings import Savings, measure_savings
from tokencover.efficiency.savings_table import export_savings, tabulate_savings
from tokencover.efficiency.workload import (
    PictureQuestion,
    Workload,
    make_workload,
    pick_drawn_questions,
    read_own_picture,
)

__all__ = [
    "PaperCost",
    "PictureQuestion",
    "Savings",
    "Workload",
    "compute_paper_costs",
    "export_paper_costs",
    "export_savings",
    "make_workload",
    "measure_savings",
    "pick_drawn_questions",
    "read_own_picture",
    "tabulate_paper_costs",
    "tabulate_savings",
]
