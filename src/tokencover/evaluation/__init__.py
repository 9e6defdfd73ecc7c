"""Measuring what pruning costs: tasks, answers, results. Pages of them are drawn by `report`."""

from tokencover.evaluation.ablation import (
    FOLD_SHARES,
    PROMPT_SHARES,
    AblationSetting,
    choose_layers,
    vary_folds,
    vary_layers,
    vary_prompt_budgets,
)
from tokencover.evaluation.answering import VisionLanguageModel, describe_run, load_model
from tokencover.evaluation.bundled_tasks import choose_benchmark
from tokencover.evaluation.calibration import calibrate
from tokencover.evaluation.plan import (
    Combination,
    EvaluationPlan,
    Scoring,
    Timing,
    Work,
    make_combinations,
)
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.result_rows import ResultRow, collect
from tokencover.evaluation.results import Record, Results, ResultsError, Scores, Seconds
from tokencover.evaluation.results_table import Column, ResultsTable, make_table, make_task_table
from tokencover.evaluation.runner import (
    AskingSettings,
    ExampleError,
    evaluate,
    find_unfinished,
    is_complete,
    score,
)
from tokencover.evaluation.stored_results import StoredResults, read_folder
from tokencover.evaluation.table_formats import as_csv, as_latex, as_markdown, render
from tokencover.evaluation.task_files import find_tasks
from tokencover.evaluation.tasks import Example, Task

__all__ = [
    "FOLD_SHARES",
    "PROMPT_SHARES",
    "AblationSetting",
    "AskingSettings",
    "Column",
    "Combination",
    "EvaluationPlan",
    "Example",
    "ExampleError",
    "Progress",
    "Record",
    "ResultRow",
    "Results",
    "ResultsError",
    "ResultsTable",
    "Scores",
    "Scoring",
    "Seconds",
    "StoredResults",
    "Task",
    "Timing",
    "VisionLanguageModel",
    "Work",
    "as_csv",
    "as_latex",
    "as_markdown",
    "calibrate",
    "choose_benchmark",
    "choose_layers",
    "collect",
    "describe_run",
    "evaluate",
    "find_tasks",
    "find_unfinished",
    "is_complete",
    "load_model",
    "make_combinations",
    "make_table",
    "make_task_table",
    "read_folder",
    "render",
    "score",
    "vary_folds",
    "vary_layers",
    "vary_prompt_budgets",
]
