"""Tasks of lmms-eval, among them the paper's benchmarks, in our evaluation.

========== =====================================================================================
benchmarks the paper's 14 benchmarks, and checks of packages, login and judge before a long run
harness    lmms-eval's tasks as ours
scores     lmms-eval's scores of answers
media      images, videos and questions of a document
data       documents of our tasks for lmms-eval
functions  functions that the task files in ``tasks/`` name
chat_model our models as a model of lmms-eval, which imports lmms-eval
========== =====================================================================================
"""

from tokencover.evaluation.lmms.benchmarks import (
    INSTALL,
    PAPER_BENCHMARKS,
    SUITES,
    PaperBenchmark,
    check_packages,
    get_benchmark,
    name_suite,
    split_names,
)
from tokencover.evaluation.lmms.harness import describe_settings, gather_tasks, read_settings
from tokencover.evaluation.lmms.media import PromptWords, ShowingSettings

__all__ = [
    "INSTALL",
    "PAPER_BENCHMARKS",
    "SUITES",
    "PaperBenchmark",
    "PromptWords",
    "ShowingSettings",
    "check_packages",
    "describe_settings",
    "gather_tasks",
    "get_benchmark",
    "name_suite",
    "read_settings",
    "split_names",
]
