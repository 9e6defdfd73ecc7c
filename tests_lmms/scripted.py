"""Answers written down beforehand for the 14 miniatures, and what they score, by hand."""

from __future__ import annotations

from typing import Any, Final

from lmms_eval.api.model import lmms

SCRIPT: Final[dict[str, list[str]]] = {
    # The first question is asked four times with its options turned: all four letters must be
    # right. Options stand in the words "A" ... "D"; the right one moves by a place each time. An
    # answer without a letter is wrong: no judge is asked what it means.
    "mmbench_en_dev_static": ["A", "B. meadow", "The answer is C", "D", "It is unclear"],
    "tokencover_mmbench_cn_dev_static": ["A", "B", "C", "A", "A"],
    "scienceqa_img": ["B", "A.", "a", "A. it is", "I do not know"],
    "vizwiz_vqa_val": ["{0}", "Unanswerable", "{2}", "no idea", "{4}"],
    "gqa": ["{0}", "{1}.", "nothing", "{3}", "nothing"],
    "mme": ["Yes", "No.", "yes", "yes", "no", "no"],
    "pope": ["Yes", "no", "perhaps", "yes", "yes"],
    "tokencover_textvqa_val_ocr": ["{0}", "x", "{2}", "{3}", "{4}"],
    "vqav2_val": ["{0}", "black", "{2}", "{3}", "none"],
    "ocrbench": ["it says {0}", "x", "{2}", "{3}", " {4} "],
    "tokencover_tgif_qa": ["a {0}", "{1}", "x", "x", "x"],
    "tokencover_msvd_qa": ["{0}", "{1}", "{2}", "x", "the {4}"],
    "tokencover_msrvtt_qa": ["x", "x", "x", "x", "{4}"],
    "tokencover_activitynet_qa": ["{0}", "It is {1}.", "x", "{3}", "x"],
}
"""By task; ``{2}`` is the correct answer to the third question."""


def read_rights(documents: Any) -> list[str]:
    """The correct answers of a data set, as a person reads them in its own columns."""
    found = []
    for row in documents:
        right: Any = row.get("answers", row.get("answer"))
        if isinstance(right, list):
            right = right[0]["answer"] if isinstance(right[0], dict) else right[0]
        found.append(str(right))
    return found


def say(task: str, rights: list[str]) -> list[str]:
    """The answers of the script."""
    return [line.format(*rights) for line in SCRIPT[task]]


class ScriptedModel(lmms):  # type: ignore[misc]
    """A model of lmms-eval that says what is written down."""

    is_simple = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[tuple[str, int], str] = {}

    def generate_until(self, requests: list[Any]) -> list[str]:
        answers = []
        for request in requests:
            _, write_messages, _, number, task, split = request.args
            ((*_, words),) = (
                turn["content"] for turn in write_messages(self.task_dict[task][split][number])
            )
            self.asked[task, number] = words["text"]
            rights = read_rights(self.task_dict[task][split])
            answers.append(say(task, rights)[number])
        return answers

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def generate_until_multi_round(self, requests: list[Any]) -> list[str]:
        raise NotImplementedError
