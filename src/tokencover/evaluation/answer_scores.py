"""Ways to score an answer."""

from __future__ import annotations

import re
from typing import Final

from tokencover.evaluation.tasks import Example


def normalize(text: str) -> str:
    """Lower case, without punctuation and blanks at either end and without doubled blanks."""
    return re.sub(r"\s+", " ", text).strip(" .,!?;:'\"").lower()


def score_exact(answer: str, example: Example) -> float:
    """1 if the answer is one of the right ones, but for case and punctuation."""
    return float(normalize(answer) in map(normalize, example.answers))


def score_contains(answer: str, example: Example) -> float:
    """1 if the answer contains one of the right ones as whole words."""
    found = normalize(answer)
    rights = filter(None, map(normalize, example.answers))
    # Not \b: an answer may begin or end with a sign, as "$5" does.
    return float(any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", found) for each in rights))


def score_vqa(answer: str, example: Example) -> float:
    """The soft accuracy of VQA: a third for each person of all who gave this answer, at most 1.

    It is the mean over leaving each person out, as the benchmark defines it.
    """
    people = [normalize(each) for each in example.answers]
    given = normalize(answer)
    scores = [
        min(1.0, sum(other == given for other in people[:left] + people[left + 1 :]) / 3)
        for left in range(len(people))
    ]
    return sum(scores) / len(scores)


SCORES: Final = {"exact": score_exact, "contains": score_contains, "vqa": score_vqa}
"""By the name that a task file uses."""
