"""Functions that the files in ``tasks/`` name: inputs, questions and scores of our tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokencover.evaluation.scoring import score_contains, score_exact
from tokencover.evaluation.tasks import Example

Document = Mapping[str, Any]
Prompts = Mapping[str, Any]


def write_question(doc: Document, lmms_eval_specific_kwargs: Prompts | None = None) -> str:
    """The question, with the texts that the task's file puts around it."""
    around = lmms_eval_specific_kwargs or {}
    return f"{around.get('pre_prompt', '')}{doc['question']}{around.get('post_prompt', '')}"


def write_activitynet_question(
    doc: Document, lmms_eval_specific_kwargs: Prompts | None = None
) -> str:
    """ActivityNet-QA's questions have neither a capital nor a question mark."""
    capitalized = {**doc, "question": doc["question"].capitalize() + "?"}
    return write_question(capitalized, lmms_eval_specific_kwargs)


def show_video(doc: Document) -> list[str]:
    """The path of a document's video."""
    return [doc["video"]]


def show_activitynet_video(doc: Document) -> list[str]:
    """The path of a video where lmms-eval unpacks ActivityNet-QA's."""
    from tokencover.evaluation.lmms.data import get_video_path

    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    return [get_video_path(home / "activitynetqa" / "all_test", f"v_{doc['video_name']}")]


def score_words(doc: Document, results: Sequence[str]) -> dict[str, float]:
    """Whether the answer contains the reference as whole words, and whether it equals it."""
    example = Example("", (), "", (str(doc["answer"]),), "")
    return {
        "contained": score_contains(results[0], example),
        "exact": score_exact(results[0], example),
    }


def score_exactly(doc: Document, results: Sequence[str]) -> dict[str, float]:
    """Whether the answer equals the reference, up to case and punctuation."""
    return {"exact": score_words(doc, results)["exact"]}


def rate_chinese_choices(results: Sequence[Mapping[str, Any]], args: Any) -> float:
    """MMBench-CN in percent: letters are extracted from the answers, without a judge."""
    from lmms_eval.tasks.mmbench.cn_utils import mmbench_evaluator

    overall, _, _ = mmbench_evaluator.eval_result(list(results), eval_method="static")
    return 100 * float(overall)
