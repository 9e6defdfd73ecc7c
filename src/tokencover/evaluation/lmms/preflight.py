"""What must be there before the long work starts: packages, a login, a judge."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tokencover.errors import InputError, LoadError, MissingPackageError, get_install_command

KNOWN_VERSION: Final = "0.7.3"
"""Of lmms-eval: the one that the tests run with."""
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
"""What lmms-eval imports, some of it only at the end of a run, and how pip calls it."""
INSTALL: Final = (
    f"{get_install_command('tokencover[lmms]')} && pip install --no-deps lmms-eval=={KNOWN_VERSION}"
)
"""Without --no-deps, pip would replace torch: see docs/reproducing.md."""


def check_packages() -> str:
    """Refuse to start if a package is missing; returns lmms-eval's version."""
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
    """Refuse to start without a login if data sets are asked for with one."""
    from huggingface_hub import get_token

    asked = {
        str(config.get("dataset_path"))
        for config in configs
        if (config.get("dataset_kwargs") or {}).get("token") is True
    }
    if asked and get_token() is None:
        raise LoadError(
            f"lmms-eval asks for {', '.join(sorted(asked))} with a Hugging Face login, and there "
            "is none: run `hf auth login`, or set HF_TOKEN. Any account will do."
        )


def check_judge(config: Mapping[str, Any]) -> None:
    """Refuse a task of lmms-eval that asks GPT while it scores, if there is no key for it."""
    metrics = [str(each.get("metric")) for each in config.get("metric_list") or []]
    judged = any(name.startswith(("gpt_", "llm_", "llmms_")) for name in metrics)
    name = str(config.get("task"))
    keys = ("OPENAI_API_KEY", "AZURE_API_KEY")
    if judged and not name.endswith("_static") and not any(os.environ.get(key) for key in keys):
        raise InputError(
            f"{name} lets a judge score its answers, and there is none: set OPENAI_API_KEY (with "
            "OPENAI_API_URL and MODEL_VERSION for another than OpenAI's), or ask the benchmark by "
            "--suite paper, which scores without one; `tokencover judge` can follow."
        )


def _is_missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None
