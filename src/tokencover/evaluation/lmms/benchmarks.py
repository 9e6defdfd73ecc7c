"""The paper's 14 benchmarks from ``data/paper_benchmarks.json``, and checks before a long run.

Nothing here imports lmms-eval or torch.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from tokencover.errors import InputError, LoadError, MissingPackageError, get_install_command
from tokencover.files import read_object
from tokencover.prompting import Kind

Counting = Literal["mean", "percent", "share", "mme"]
"""How a benchmark computes its score: the mean score; a metric of lmms-eval in percent or as a
fraction; or MME's sum over categories, each out of 200."""
PREFIX: Final = "lmms:"
"""How the name of a task of lmms-eval begins among our tasks."""
KNOWN_VERSION: Final = "0.7.3"
"""The version of lmms-eval that the tests run with."""
NEEDED: Final = {
    "datasets": "datasets",
    "evaluate": "evaluate",
    "loguru": "loguru",
    "openpyxl": "openpyxl",
    "pytablewriter": "pytablewriter",
    "pytz": "pytz",
    "sacrebleu": "sacrebleu",
    "tenacity": "tenacity",
    "accelerate": "accelerate",
    "av": "av<16",
}
"""Modules that lmms-eval imports, some of them only at the end of a run, and their requirements."""
INSTALL: Final = (
    f"{get_install_command('tokencover[lmms]')} && pip install --no-deps lmms-eval=={KNOWN_VERSION}"
)
"""Without --no-deps, pip would replace torch: see docs/research/reproducing.md."""


@dataclass(frozen=True)
class PaperBenchmark:
    """A benchmark of the paper.

    `task` is its task of lmms-eval (``tokencover_...`` are ours), `group` the coupling group or
    "video", `paper` the paper's score without pruning (LLaVA-1.5-7B, of videos Video-LLaVA-7B).
    `metric` is the metric of lmms-eval that the score is computed from, `differs` how it may differ
    from the paper's. `cluster` is the field of a document that questions about one image share;
    `max_new_tokens` applies where lmms-eval fixes none; `together` questions belong together, and a
    limit does not separate them.
    """

    name: str
    task: str
    group: str
    dataset: str
    split: str
    questions: int
    paper: float
    counting: Counting
    metric: str
    differs: str
    cluster: str = ""
    max_new_tokens: int | None = None
    together: int = 1

    @property
    def full_name(self) -> str:
        """Its name in ``--tasks``."""
        return PREFIX + self.task

    @property
    def shows(self) -> Kind:
        """The input that a model must support."""
        return "video" if self.group == "video" else "image"

    @property
    def judged(self) -> bool:
        """Whether the paper's score is a judge's."""
        return self.group == "video"


def _read_benchmarks() -> Iterator[PaperBenchmark]:
    path = Path(__file__).parents[1] / "data" / "paper_benchmarks.json"
    content = read_object(path)
    for entry in content["benchmarks"]:
        reasons = [content["reasons"].get(reason, reason) for reason in entry["differs"]]
        yield PaperBenchmark(**{**entry, "differs": "; ".join(reasons)})


PAPER_BENCHMARKS: Final = tuple(_read_benchmarks())
SUITES: Final = {
    "paper": tuple(each.task for each in PAPER_BENCHMARKS),
    "paper-images": tuple(each.task for each in PAPER_BENCHMARKS if each.shows == "image"),
    "paper-video": tuple(each.task for each in PAPER_BENCHMARKS if each.shows == "video"),
    "paper-strong": tuple(each.task for each in PAPER_BENCHMARKS if each.group == "strong"),
    "paper-weak": tuple(each.task for each in PAPER_BENCHMARKS if each.group == "weak"),
}
"""The tasks of each suite."""


def name_suite(suite: str, kinds: Collection[Kind] = ("image", "video")) -> list[str]:
    """List the names of a suite's tasks with these inputs, as ``--tasks`` takes them."""
    if suite not in SUITES:
        raise InputError(f"no suite is called {suite!r}; there are {', '.join(SUITES)}.")
    return [
        each.full_name
        for each in PAPER_BENCHMARKS
        if each.task in SUITES[suite] and each.shows in kinds
    ]


def get_benchmark(task: str) -> PaperBenchmark | None:
    """Return the paper's benchmark of a task of lmms-eval, None if it is another."""
    return next((each for each in PAPER_BENCHMARKS if each.task == task), None)


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split names into ours, and those of lmms-eval's tasks without their prefix."""
    ours = [name for name in names if not name.startswith(PREFIX)]
    return ours, [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]


# ---- checks before a long run ---------------------------------------------------------------


def check_packages() -> str:
    """Raise `MissingPackageError` if a package is missing; returns lmms-eval's version."""
    missing = [name for module, name in NEEDED.items() if _is_missing(module)]
    if _is_missing("lmms_eval"):
        missing.insert(0, "lmms-eval")
    if missing:
        raise MissingPackageError(
            f"benchmarks of lmms-eval need {', '.join(missing)}, which this environment does not "
            f"have: {INSTALL}"
        )
    return importlib.metadata.version("lmms-eval")


def check_login(configs: Iterable[Mapping[str, Any]]) -> None:
    """Raise `LoadError` if datasets require a login, and there is none."""
    from huggingface_hub import get_token

    gated = {
        str(config.get("dataset_path"))
        for config in configs
        if (config.get("dataset_kwargs") or {}).get("token") is True
    }
    if gated and get_token() is None:
        raise LoadError(
            f"lmms-eval loads {', '.join(sorted(gated))} with a Hugging Face login, and there "
            "is none: run `hf auth login`, or set HF_TOKEN. Any account will do."
        )


def check_judge(config: Mapping[str, Any]) -> None:
    """Raise `InputError` for a task that GPT scores, if there is no key for it."""
    metrics = [str(each.get("metric")) for each in config.get("metric_list") or []]
    judged = any(name.startswith(("gpt_", "llm_", "llmms_")) for name in metrics)
    name = str(config.get("task"))
    keys = ("OPENAI_API_KEY", "AZURE_API_KEY")
    if judged and not name.endswith("_static") and not any(os.environ.get(key) for key in keys):
        raise InputError(
            f"{name} lets a judge score its answers, and there is none: set OPENAI_API_KEY (with "
            "OPENAI_API_URL and MODEL_VERSION for another than OpenAI's), or run the benchmark "
            "with --suite paper, which scores without one; `tokencover judge` can follow."
        )


def _is_missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None
