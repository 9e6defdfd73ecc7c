"""The paper's 14 benchmarks: which task of lmms-eval each is, what the paper prints, what differs.

Nothing here imports lmms-eval or torch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tokencover.errors import InputError
from tokencover.prompting import Kind

Counting = Literal["mean", "percent", "share", "mme"]
"""How a benchmark's number comes about: the mean score; a metric of lmms-eval in percent or as a
share; or MME's sum over categories, each out of 200."""


@dataclass(frozen=True)
class PaperBenchmark:
    """A benchmark of the paper.

    Attributes
    ----------
    name : str
        As the paper's tables have it, and ours.
    task : str
        The task of lmms-eval that asks it; ``tokencover_...`` are our own.
    group : str
        The paper's coupling group: "strong", "weak", or "video".
    dataset, split : str
        Where the questions are.
    questions : int
        How many there are.
    paper : float
        The paper's number without pruning: LLaVA-1.5-7B, of videos Video-LLaVA-7B.
    counting : "mean", "percent", "share" or "mme"
        How the number comes about.
    metric : str
        The metric of lmms-eval that it is made of.
    differs : str
        How our number may differ from the paper's.
    cluster : str
        The field of a document that questions about one picture or video share; "" if none does.
    max_new_tokens : int, optional
        Length of an answer, where lmms-eval fixes none.
    together : int
        So many questions belong together, and a limit does not part them.
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
        """As ``--tasks`` names it."""
        return PREFIX + self.task

    @property
    def shows(self) -> Kind:
        """What a model is shown."""
        return "video" if self.group == "video" else "image"

    @property
    def judged(self) -> bool:
        """Whether the paper's number is a judge's."""
        return self.group == "video"


_CROP: Final = "LLaVA's own evaluation pads pictures to squares, llava-hf's processor crops: --pad"
_JUDGE: Final = (
    "the paper's judge and its version are not named: ours is a word count until `tokencover judge`"
)
SHORT: Final = 128
"""New tokens where lmms-eval leaves it to the model: answers are a word or a phrase."""

PAPER_BENCHMARKS: Final = (
    PaperBenchmark(
        "MMB", "mmbench_en_dev_static", "strong", "lmms-lab-encoder/MMBench", "en dev", 4329, 64.7,
        "percent", "gpt_eval_score",
        f"letters are found without GPT; {_CROP}", "index",
    ),
    PaperBenchmark(
        "MMB-CN", "tokencover_mmbench_cn_dev_static", "strong", "lmms-lab-encoder/MMBench",
        "cn dev", 4329, 58.1, "percent", "gpt_eval_score",
        f"letters are found without GPT, which lmms-eval's own task asks; {_CROP}", "index",
    ),
    PaperBenchmark(
        "SQA", "scienceqa_img", "strong", "lmms-lab-encoder/ScienceQA", "IMG test", 2017, 69.5,
        "mean", "exact_match", _CROP,
    ),
    PaperBenchmark(
        "VizWiz", "vizwiz_vqa_val", "strong", "lmms-lab-encoder/VizWiz-VQA", "val", 4319, 50.0,
        "mean", "exact_match",
        "50.0 is of test-dev, which only a server scores: val is another number; " + _CROP,
        max_new_tokens=SHORT,
    ),
    PaperBenchmark(
        "GQA", "gqa", "weak", "lmms-lab-encoder/GQA", "testdev balanced", 12578, 61.9,
        "mean", "exact_match", _CROP, "imageId",
    ),
    PaperBenchmark(
        "MME", "mme", "weak", "lmms-lab-encoder/MME", "test", 2374, 1862, "mme",
        "mme_perception_score", f"perception and cognition together, as in the paper; {_CROP}",
        "question_id", together=2,
    ),
    PaperBenchmark(
        "POPE", "pope", "weak", "lmms-lab-encoder/POPE", "test", 9000, 85.9, "share",
        "pope_f1_score",
        "85.9 is LLaVA's mean F1 of three parts; here F1 of all, in which only a bare yes or no "
        f"counts; {_CROP}", "image_source",
    ),
    PaperBenchmark(
        "TextVQA", "tokencover_textvqa_val_ocr", "weak", "lmms-lab-encoder/textvqa", "validation",
        5000, 58.2, "mean", "exact_match",
        f"with OCR tokens in the prompt, which lmms-eval's own task leaves out; {_CROP}",
        "image_id", max_new_tokens=SHORT,
    ),
    PaperBenchmark(
        "VQAv2", "vqav2_val", "weak", "lmms-lab-encoder/VQAv2", "validation", 214354, 78.5,
        "mean", "exact_match",
        "78.5 is of test-dev, which only a server scores: validation is another number; " + _CROP,
        "image_id",
    ),
    PaperBenchmark(
        "OCR", "ocrbench", "weak", "echo840/OCRBench", "test", 1000, 297, "mean",
        "ocrbench_accuracy", _CROP,
    ),
    PaperBenchmark(
        "TGIF", "tokencover_tgif_qa", "video", "GPT_Zero_Shot_QA/TGIF_Zero_Shot_QA", "test", 25751,
        47.1, "mean", "contained", _JUDGE, "video_name",
    ),
    PaperBenchmark(
        "MSVD", "tokencover_msvd_qa", "video", "GPT_Zero_Shot_QA/MSVD_Zero_Shot_QA", "test", 13157,
        69.8, "mean", "contained", _JUDGE, "video_name",
    ),
    PaperBenchmark(
        "MSRVTT", "tokencover_msrvtt_qa", "video", "GPT_Zero_Shot_QA/MSRVTT_Zero_Shot_QA", "test",
        72821, 56.7, "mean", "contained", _JUDGE, "video_name",
    ),
    PaperBenchmark(
        "ActivityNet", "tokencover_activitynet_qa", "video", "lmms-eval/ActivityNetQA", "test",
        8000, 43.1, "mean", "contained", _JUDGE, "video_name",
    ),
)  # fmt: skip

SUITES: Final = {
    "paper": tuple(each.task for each in PAPER_BENCHMARKS),
    "paper-images": tuple(each.task for each in PAPER_BENCHMARKS if each.shows == "image"),
    "paper-video": tuple(each.task for each in PAPER_BENCHMARKS if each.shows == "video"),
    "paper-strong": tuple(each.task for each in PAPER_BENCHMARKS if each.group == "strong"),
    "paper-weak": tuple(each.task for each in PAPER_BENCHMARKS if each.group == "weak"),
}
"""The tasks of each suite."""
PREFIX: Final = "lmms:"
"""How the name of a task of lmms-eval begins among tasks of ours."""


def name_suite(suite: str, kinds: Collection[Kind] = ("image", "video")) -> list[str]:
    """Name a suite's tasks as ``--tasks`` does: those that show one of some kinds."""
    if suite not in SUITES:
        raise InputError(f"no suite is called {suite!r}; there are {', '.join(SUITES)}.")
    return [
        each.full_name
        for each in PAPER_BENCHMARKS
        if each.task in SUITES[suite] and each.shows in kinds
    ]


def find_benchmark(task: str) -> PaperBenchmark | None:
    """The paper's benchmark that a task of lmms-eval asks, None if it is another."""
    return next((each for each in PAPER_BENCHMARKS if each.task == task), None)


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of ours, and names of lmms-eval's tasks without their prefix; order is kept."""
    ours = [name for name in names if not name.startswith(PREFIX)]
    return ours, [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
