"""The paper's benchmarks, and any other of lmms-eval's, as tasks of ours.

`chat_model` is our models as one of lmms-eval's: it imports lmms-eval, so it is not at this door.
"""

from tokencover.evaluation.lmms.harness_tasks import describe_settings, gather_tasks, read_settings
from tokencover.evaluation.lmms.paper_benchmarks import (
    PAPER_BENCHMARKS,
    SUITES,
    PaperBenchmark,
    find_benchmark,
    name_suite,
    split_names,
)
from tokencover.evaluation.lmms.preflight import INSTALL, check_packages
from tokencover.evaluation.lmms.shown_media import PromptWords, ShowingSettings

__all__ = [
    "INSTALL",
    "PAPER_BENCHMARKS",
    "SUITES",
    "PaperBenchmark",
    "PromptWords",
    "ShowingSettings",
    "check_packages",
    "describe_settings",
    "find_benchmark",
    "gather_tasks",
    "name_suite",
    "read_settings",
    "split_names",
]
