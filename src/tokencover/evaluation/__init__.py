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
from tokencover.evaluation.calibration import calibrate
from tokencover.evaluation.comparison import check_reference, do_unfinished, evaluate
from tokencover.evaluation.exported_results import EXPORT_KIND, export_results
from tokencover.evaluation.judging import count_unreadable, judge_results
from tokencover.evaluation.language_judge import Judge, JudgeError
from tokencover.evaluation.own_data import make_task
from tokencover.evaluation.plan import (
    Combination,
    EvaluationPlan,
    Scoring,
    Timing,
    Work,
    check_part,
    make_combinations,
)
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.result_rows import ResultRow, collect, list_warnings
from tokencover.evaluation.results import Results
from tokencover.evaluation.results_folder import (
    Record,
    ResultsError,
    ResultsFolder,
    Scores,
    Seconds,
)
from tokencover.evaluation.results_memory import ResultsInMemory, ResultsStore
from tokencover.evaluation.results_table import Column, ResultsTable, make_table, make_task_table
from tokencover.evaluation.runner import (
    AskingSettings,
    ExampleError,
    do_work,
    find_unfinished,
    score,
)
from tokencover.evaluation.stored_commands import read_commands, record_command
from tokencover.evaluation.stored_results import read_folder
from tokencover.evaluation.table_formats import as_csv, as_latex, as_markdown, render
from tokencover.evaluation.task_files import find_tasks
from tokencover.evaluation.tasks import Example, Task, check_files

__all__ = [
    "EXPORT_KIND",
    "FOLD_SHARES",
    "PROMPT_SHARES",
    "AblationSetting",
    "AskingSettings",
    "Column",
    "Combination",
    "EvaluationPlan",
    "Example",
    "ExampleError",
    "Judge",
    "JudgeError",
    "Progress",
    "Record",
    "ResultRow",
    "Results",
    "ResultsError",
    "ResultsFolder",
    "ResultsInMemory",
    "ResultsStore",
    "ResultsTable",
    "Scores",
    "Scoring",
    "Seconds",
    "Task",
    "Timing",
    "VisionLanguageModel",
    "Work",
    "as_csv",
    "as_latex",
    "as_markdown",
    "calibrate",
    "check_files",
    "check_part",
    "check_reference",
    "choose_layers",
    "collect",
    "count_unreadable",
    "describe_run",
    "do_unfinished",
    "do_work",
    "evaluate",
    "export_results",
    "find_tasks",
    "find_unfinished",
    "judge_results",
    "list_warnings",
    "load_model",
    "make_combinations",
    "make_table",
    "make_task",
    "make_task_table",
    "read_commands",
    "read_folder",
    "record_command",
    "render",
    "score",
    "vary_folds",
    "vary_layers",
    "vary_prompt_budgets",
]
