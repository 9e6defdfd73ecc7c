"""Measuring what pruning costs: tasks, answers, results."""

from tokencover.evaluation.loading import VisionLanguageModel, load_model
from tokencover.evaluation.task import Example, Task
from tokencover.evaluation.tasks import find_tasks

__all__ = ["Example", "Task", "VisionLanguageModel", "find_tasks", "load_model"]
