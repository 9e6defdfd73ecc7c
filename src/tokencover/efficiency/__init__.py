"""What pruning saves: FLOPs, time, memory."""

from tokencover.efficiency.savings import Savings, export_savings, measure_savings, tabulate_savings
from tokencover.efficiency.workload import (
    Workload,
    build_workload,
    select_drawn_questions,
)

__all__ = [
    "Savings",
    "Workload",
    "build_workload",
    "export_savings",
    "measure_savings",
    "select_drawn_questions",
    "tabulate_savings",
]
