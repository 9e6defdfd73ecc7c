"""Scores of lmms-eval: of one answer, and of all answers."""

from __future__ import annotations

import contextlib
import inspect
import io
import math
import tempfile
from argparse import Namespace
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tokencover.errors import InputError
from tokencover.evaluation.lmms.benchmarks import PaperBenchmark
from tokencover.evaluation.tasks import Example, Total

SUBMISSION: Final = "submission"
"""The metric of lmms-eval that is a file to submit."""
BEST_OF_CATEGORY: Final = 200
"""MME's best score in one of its categories."""


class HarnessScores:
    """Scores the answers to a task of lmms-eval.

    `inner` is lmms-eval's task, `documents` its documents without images, `benchmark` the paper's
    benchmark if it is one.
    """

    def __init__(
        self, manager: Any, name: str, inner: Any, benchmark: PaperBenchmark | None, documents: Any
    ) -> None:
        self._manager, self._name, self._inner = manager, name, inner
        self._benchmark, self._documents = benchmark, documents
        # A task may call a judge for each answer: only once.
        self._known: dict[tuple[int, str], dict[str, Any]] = {}

    def score(self, answer: str, example: Example) -> float:
        """Return the score of one answer between 0 and 1.

        Raises `InputError` if the task has none for a single answer.
        """
        values = self._process(answer, example)
        if self._benchmark is not None and self._benchmark.counting == "percent":
            return self._rate_choice(answer, example)
        listed = [each["metric"] for each in self._inner.config.metric_list or []]
        first = next((name for name in [*listed, *values] if name in values), None)
        if first is not None and first != SUBMISSION:
            value = values[first]
            number = value.get("score") if isinstance(value, dict) else value
            if isinstance(number, int | float) and 0 <= number <= 1:
                return float(number)
        raise InputError(
            f"{self._name} has no score between 0 and 1 for a single answer ({sorted(values)}): "
            "use lmms-eval's own command with `--model tokencover` for it, see "
            "docs/research/reproducing.md."
        )

    def sum_up(self, answered: Sequence[tuple[Example, str]]) -> Total:
        """Return lmms-eval's metrics of all answers, and the benchmark's score."""
        values: defaultdict[str, list[Any]] = defaultdict(list)
        for example, answer in answered:
            for metric, value in self._process(answer, example).items():
                values[metric].append(value)
        self._known.clear()
        metrics = self._aggregate(values)
        return Total(self._compute_share(metrics, values), metrics)

    def _process(self, answer: str, example: Example) -> dict[str, Any]:
        number: int = getattr(example, "number", -1)
        if (number, answer) not in self._known:
            values = self._inner.process_results(self._documents[number], [answer])
            self._known[number, answer] = values
        return self._known[number, answer]

    def _rate_choice(self, answer: str, example: Example) -> float:
        """Whether MMBench extracts the correct letter; all four orders are counted in `sum_up`."""
        import pandas
        from lmms_eval.tasks.mmbench.en_utils import mmbench_evaluator

        row = self._process(answer, example)["gpt_eval_score"]
        rows, references = pandas.DataFrame([row]), {row["index"]: row["answer"]}
        return float(mmbench_evaluator.eval_sub_data(rows, references, static_only=True))

    def _aggregate(self, values: dict[str, list[Any]]) -> dict[str, float]:
        from lmms_eval.api.registry import get_aggregation

        # Read again: some functions add up in a variable of their module.
        listed = self._manager._get_config(self._name).get("metric_list") or []
        metrics = {}
        with tempfile.TemporaryDirectory() as folder:
            arguments = Namespace(output_path=folder, process_with_media=False, reasoning_tags=None)
            for each in listed:
                name, function = each["metric"], each.get("aggregation", "mean")
                if name == SUBMISSION or name not in values:
                    continue
                if isinstance(function, str):
                    function = get_aggregation(function)
                takes_args = "args" in inspect.signature(function).parameters
                wanted = {"args": arguments} if takes_args else {}
                with contextlib.redirect_stdout(io.StringIO()):
                    value = function(values[name], **wanted)
                if isinstance(value, int | float) and math.isfinite(value):
                    metrics[name] = float(value)
        return metrics

    def _compute_share(
        self, metrics: dict[str, float], values: dict[str, list[Any]]
    ) -> float | None:
        benchmark = self._benchmark
        if benchmark is None or benchmark.counting == "mean":
            return None
        if benchmark.counting == "mme":
            parts = [name for name in values if name.startswith("mme_")]
            categories = {each["category"] for name in parts for each in values[name]}
            total = sum(metrics[name] for name in parts)
            return total / (BEST_OF_CATEGORY * len(categories))
        scale = 100 if benchmark.counting == "percent" else 1
        return metrics[benchmark.metric] / scale
