"""Evaluation: tasks, answers, results. `report` turns results into pages.

=========== ====================================================================================
comparison  `tc.evaluate`
tasks       tasks, examples, their images and videos
own_data    tasks by name, and from your data
plan        units of work: methods, budgets, tasks
answering   a model with its processor, and the description of a run
runner      runs units: answers questions, times first tokens
progress    progress of a run
records     results of a unit, and their JSON
store       folders of results
scoring     from answers to numbers: scores, summaries, rows
columns     the list of columns, and the table that compares methods
formats     the table as Markdown, LaTeX and HTML
results     `Results`: read from a folder, written as tables and data
ablation    the paper's ablations of MoB
calibration coupling of a model on tasks
judge       a language model as a judge
judging     judged folders of results
lmms        tasks of lmms-eval
report      pages, charts and texts
=========== ====================================================================================
"""

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
from tokencover.evaluation.comparison import do_unfinished, evaluate, resolve_reference
from tokencover.evaluation.formats import render
from tokencover.evaluation.judge import Judge, JudgeError
from tokencover.evaluation.judging import count_unreadable, judge_results
from tokencover.evaluation.own_data import load_tasks, make_task
from tokencover.evaluation.plan import Combination, EvaluationPlan, Scoring, Timing, check_part
from tokencover.evaluation.progress import Progress
from tokencover.evaluation.records import Record, ResultsError
from tokencover.evaluation.results import EXPORT_KIND, Results, export_results, read_folder
from tokencover.evaluation.runner import ExampleError, GenerationSettings, score
from tokencover.evaluation.scoring import ResultRow, collect, list_warnings
from tokencover.evaluation.store import ResultsFolder, read_commands, record_command
from tokencover.evaluation.tasks import Example, Task, check_files

__all__ = [
    "EXPORT_KIND",
    "FOLD_SHARES",
    "PROMPT_SHARES",
    "AblationSetting",
    "Combination",
    "EvaluationPlan",
    "Example",
    "ExampleError",
    "GenerationSettings",
    "Judge",
    "JudgeError",
    "Progress",
    "Record",
    "ResultRow",
    "Results",
    "ResultsError",
    "ResultsFolder",
    "Scoring",
    "Task",
    "Timing",
    "VisionLanguageModel",
    "calibrate",
    "check_files",
    "check_part",
    "choose_layers",
    "collect",
    "count_unreadable",
    "describe_run",
    "do_unfinished",
    "evaluate",
    "export_results",
    "judge_results",
    "list_warnings",
    "load_model",
    "load_tasks",
    "make_task",
    "read_commands",
    "read_folder",
    "record_command",
    "render",
    "resolve_reference",
    "score",
    "vary_folds",
    "vary_layers",
    "vary_prompt_budgets",
]
